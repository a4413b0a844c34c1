"""The toy that other tools were tried on, as a recording: 60 RL steps on one GPU, seen like nvidia-smi sees them.

    python benchmarks/toys.py OUT [--counters]

Each step of about 20 s: rollout 9 s at 96 %, reward 5 s at 34 %, train 5 s at 90 %, weight sync 1 s at 58 % with 92 %
memory access and one 600 MB host-to-device copy. Every fourth step reward worker 1 is slow: 8 s at 12 %. Tools that know
supervised training answered "waiting on the loader", "pin_memory=True" and "torch.compile". The truth is in ``TRUTH``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dipstick.recording.writer import RecordingWriter
from dipstick.selftest.instruments import EPOCH_NS, HOST, Extra, Sampling, Scene
from dipstick.selftest.loop import JobPlan, Plan, draw
from dipstick.selftest.write import tables, trainer_pid, worker_pid

if TYPE_CHECKING:
    from dipstick.selftest.loop import Loop

SEED: Final = 7
COPY_B: Final = 600_000_000
EVERY: Final = 4
PLAN: Final = Plan(
    steps=60, ranks=1, generate_s=9.0, generate_spread=0.02, logprobs_s=0.0, parse_s=0.0, forward_s=0.45, backward_s=0.8,
    weight_sync_s=1.0, jobs=JobPlan(count=8, seconds=1.22, spread=0.03, slow={(0, 1): 1.6}, slow_every=EVERY, fixed=True),
)  # fmt: skip
LEVELS: Final = {
    "generate": (96.0, 60.0, 540.0, 65.0, 50.0, 20.0, 40.0), "reward": (34.0, 5.0, 170.0, 12.0, 4.0, 0.0, 40.0),
    "forward": (90.0, 40.0, 600.0, 75.0, 35.0, 45.0, 40.0), "backward": (90.0, 40.0, 600.0, 75.0, 35.0, 45.0, 40.0),
    "weight_sync": (58.0, 92.0, 330.0, 25.0, 80.0, 0.0, 40.0),
}  # fmt: skip
LIKE_SMI: Final = Sampling(period_s=1.0, window_s=1.0, counters=False, power=False)
TRUTH: Final[dict[str, Any]] = {
    "dips": "reward", "slow_worker": worker_pid(0, 1), "other_worker": worker_pid(0, 0), "copies": "weight_sync",
    "deep_steps": list(range(EVERY - 1, PLAN.steps, EVERY)),
}  # fmt: skip


def scene() -> Scene:
    """The toy: usual levels, rewards that read 22 points lower in the slow steps, and the copy on the bus."""
    loop = draw(PLAN, np.random.default_rng(SEED))
    slow = TRUTH["deep_steps"]
    at = [edges[0][slow] / 1e9 for edges in (loop.start("score"), loop.end("score"))]
    sync = [edges[0] / 1e9 for edges in (loop.start("weight_sync"), loop.end("weight_sync"))]
    copies = {"pcie_rx_mib_s": COPY_B / 2**20}  # 600 MB in a second's mean
    return Scene(loop, (Extra(at[0], at[1], {"util_pct": -22.0}), Extra(sync[0], sync[1], copies)), LEVELS)


def handoffs(loop: Loop) -> list[dict[str, Any]]:
    """One copy to the GPU a step, in the middle of the weight sync."""
    middle = (loop.start("weight_sync")[0] + loop.end("weight_sync")[0]) // 2
    same = {
        "host": HOST, "rank": 0, "from": "trainer", "to": "engine", "types": "Tensor", "count": 1, "bytes_b": COPY_B,
        "device": "cuda:0", "transport": "cudaMemcpyAsync",
    }  # fmt: skip
    return [same | {"t_ns": int(t) + EPOCH_NS} for t in middle]


def write(out: Path, *, counters: bool = False) -> Loop:
    """Write the recording.

    Args:
        out: Folder; replaced if it is a recording.
        counters: Add SM, DRAM and PCIe counters at 1 Hz, as DCGM gives them, and board power.
    """
    toy = scene()
    sampling = replace(LIKE_SMI, counters=counters, power=counters)
    with RecordingWriter.create(
        out, origin="imported", host=HOST, source="the peers' toy", force=True
    ) as writer:
        for table, rows in tables(toy, sampling, np.random.default_rng(SEED)):
            writer.append(table, rows)
        writer.append("handoffs", handoffs(toy.loop))
    return toy.loop


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write the peers' toy as a recording.")
    parser.add_argument("out", type=Path, help="folder to write (replaced if it is a recording)")
    parser.add_argument("--counters", action="store_true", help="with SM, DRAM and PCIe counters and power")
    options = parser.parse_args()
    loop = write(options.out, counters=options.counters)
    print(f"{options.out}: {loop.plan.steps} steps, trainer {trainer_pid(0)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
