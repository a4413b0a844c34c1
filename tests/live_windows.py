"""Windows of a run around one instant, hand-made in seconds, for the tests of the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dipstick.analysis.live import frame
from dipstick.recording.window import Health, Window
from records import UNIX_NS, Row, counters, ns, process, span, table, utilization

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.live_frame import Frame
    from dipstick.recording.window import Mode


def going(name: str, start: float, *, rank: int = 0, step: int | None = None) -> Row:
    """A span that has not ended."""
    return span(name, start, start, rank=rank, step=step) | {"t1_ns": None}


def window(
    t: float, *, health: Health | None = None, mode: Mode = "recording", **rows: Sequence[Row]
) -> Window:
    """What is known at second ``t``."""
    tables = {name: table(name, part) for name, part in rows.items()}
    stamps = [row["t_ns"] for name in ("gpu", "host_process") for row in rows.get(name, ())]
    known = [stamp for stamp in stamps if stamp <= ns(t)]
    sampled = max(known) if known else None
    return Window("RUN", UNIX_NS, ns(t), 0, ns(t), sampled, mode, tables, health or Health())


def at(t: float, **rows: Any) -> Frame:
    """The frame at second ``t``."""
    return frame(window(t, **rows))


def straggling(t: float = 9.0) -> dict[str, Sequence[Row]]:
    """Two ranks, step 1: both generated until 4 s; rank 0's rewards ended at 6 s, rank 1's go on.

    GPU 0 reads 100 % at no SM work while its rank waits, GPU 1 10 % while its rank scores.
    """
    steps = [span("step", 0, 2, rank=rank, step=0) for rank in (0, 1)] + [
        span("generate", 0, 1.5, rank=rank, step=0) for rank in (0, 1)
    ]
    now = [going("step", 2, rank=rank, step=1) for rank in (0, 1)]
    mine = [span("GRPOTrainer.vLLM.generate", 2, 4, rank=rank, step=1) for rank in (0, 1)]
    rewards = [
        span("GRPOTrainer._calculate_rewards", 4, 6, rank=0, step=1),
        going("GRPOTrainer._calculate_rewards", 4, rank=1, step=1),
    ]
    polls = int(t / 0.2)
    waiting = [99.0 if 0.2 * (i + 1) <= 4 else 10.0 if 0.2 * (i + 1) <= 6 else 100.0 for i in range(polls)]
    scoring = [99.0 if 0.2 * (i + 1) <= 4 else 10.0 for i in range(polls)]
    works = [60.0 if 0.2 * (i + 1) <= 4 else 8.0 if 0.2 * (i + 1) <= 6 else 0.0 for i in range(polls)]
    return {
        "spans": [*steps, *now, *mine, *rewards],
        "processes": [process(900, rank=0, gpu=0), process(901, rank=1, gpu=1)],
        "gpu": [
            *utilization(waiting, gpu=0, source="poll", mem_used_b=86 * 2**30, power_w=130.0),
            *utilization(scoring, gpu=1, source="poll", mem_used_b=80 * 2**30, power_w=200.0),
        ],
        "gpu_counters": [
            *counters(works, gpu=0, pcie_rx_mib_s=0.0, tensor_active_pct=0.0, dram_active_pct=0.0),
            *counters([8.0] * polls, gpu=1, pcie_rx_mib_s=90.0),
        ],
        "gpus": [{"host": "node1", "gpu": gpu, "name": "H200", "mem_total_b": 140 * 2**30} for gpu in (0, 1)],
        "jobs": [
            {"host": "node1", "rank": 1, "job": str(i), "step": 1, "submitted_ns": ns(4), "t0_ns": ns(4),
             "t1_ns": ns(5) if i < 3 else None, "pid": 1000 + i}
            for i in range(8)
        ],
    }  # fmt: skip
