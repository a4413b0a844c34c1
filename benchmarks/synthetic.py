"""A recording of any size with planted truth: a TRL-like GRPO loop on N ranks, one GPU each.

    python benchmarks/synthetic.py OUT --gpus 8 --hours 24 --hz 10 --spans 5000000

Every step of every rank is a row of consecutive stretches (see ``COLUMNS``); ranks meet after generation and
after the rewards, and whoever is early waits. Spans, telemetry and the truth are all read off these stretches, so
the exclusive seconds of every phase are known to the nanosecond. The truth is written to OUT.truth.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

HOST = "node0"
EPOCH_NS = 1_800_000_000_000_000_000
STARTUP_S = 20.0
COUNTER_WINDOW_NS = 200_000_000
SAVE_STEPS = 50

# One step of one rank, in order: (phase, mean seconds, relative spread). Waits are worked out from the other ranks.
HEAD = (
    ("unattributed", 0.02, 0.1), ("weight_sync", 0.17, 0.1), ("generate", 2.0, 0.05), ("collective_wait", 0.0, 0.0),
    ("unattributed", 0.005, 0.0), ("logprobs", 0.8, 0.02), ("reward", 3.0, 0.4), ("gather_wait", 0.0, 0.0),
    ("unattributed", 0.005, 0.0),
)  # fmt: skip
MICRO = (
    ("forward", 0.1, 0.05),
    ("forward", 0.08, 0.05),
    ("backward", 0.18, 0.05),
    ("unattributed", 0.015, 0.3),
)
TAIL = (("optimizer", 0.006, 0.1), ("checkpoint", 1.0, 0.1), ("unattributed", 0.01, 0.1))
LENGTHS_WAIT, REWARD, GATHER_WAIT = 3, 6, 7

# What the instruments read in each phase, from the H200 traces: utilization, memory access, power, SM, DRAM, tensor.
LEVELS = {
    "generate": (99, 81, 560, 70, 63, 20), "logprobs": (95, 40, 600, 80, 40, 60), "reward": (17, 3, 150, 6, 2, 0),
    "gather_wait": (100, 0, 126, 0.76, 0, 0), "collective_wait": (100, 0, 126, 0.76, 0, 0),
    "forward": (60, 20, 420, 50, 18, 35), "backward": (62, 22, 430, 52, 20, 36), "optimizer": (50, 60, 300, 30, 45, 0),
    "weight_sync": (48, 35, 300, 20, 30, 0), "checkpoint": (4, 0, 130, 1, 0, 0), "unattributed": (10, 2, 150, 5, 1, 0),
    "startup": (0, 0, 121, 0, 0, 0),
}  # fmt: skip
IDLE_W = 121.0


@dataclass(frozen=True, slots=True)
class Size:
    """How big the recording is; ``spans`` and ``hours`` are met by choosing the number and length of steps."""

    gpus: int = 8
    hours: float = 24.0
    hz: float = 10.0
    spans: int = 5_000_000
    micro_steps: int = 24
    jobs: int = 4
    counters_hz: float = 0.0
    seed: int = 7

    @property
    def steps(self) -> int:
        """Steps of each rank."""
        each = len(_span_table(self.micro_steps)) - 1  # checkpoints are rare
        return max(3, -(-self.spans // (self.gpus * each)))

    @property
    def columns(self) -> tuple[tuple[str, float, float], ...]:
        """The stretches of one step."""
        return HEAD + MICRO * self.micro_steps + TAIL


@dataclass(frozen=True, slots=True)
class Loop:
    """The planted truth: ``edges[r, k, c]`` is where stretch c of step k of rank r starts (ns since start)."""

    size: Size
    edges: Ints
    phases: tuple[str, ...]
    startup_ns: int

    def truth(self) -> dict[str, Any]:
        """Exclusive seconds by rank and phase, and how often each rank came last to the reward barrier."""
        stretches = np.diff(self.edges, axis=2).sum(axis=1)
        seconds = [
            {
                phase: int(row[[p == phase for p in self.phases]].sum()) / 1e9
                for phase in sorted(set(self.phases))
            }
            for row in stretches
        ]
        last = self.edges[:, :, GATHER_WAIT].argmax(axis=0)
        return {
            "steps": self.size.steps,
            "window_s": [int(self.edges[:, 0, 0].min()) / 1e9, int(self.edges[:, -1, -1].max()) / 1e9],
            "seconds": seconds,
            "last_in_steps": np.bincount(last, minlength=self.size.gpus).tolist(),
        }


def plan(size: Size) -> Loop:
    """Draw every stretch, let the early ranks wait, and scale the whole to the wanted hours."""
    rng = np.random.default_rng(size.seed)
    shape = (size.gpus, size.steps)
    drawn = [
        mean * np.exp(rng.normal(0, spread, shape)) if mean else np.zeros(shape)
        for _, mean, spread in size.columns
    ]
    seconds = np.stack(drawn, axis=2)
    saves = np.zeros(shape, np.bool_)
    saves[0, SAVE_STEPS - 1 :: SAVE_STEPS] = True  # rank 0 writes, the others meet it at the next barrier
    seconds[:, :, -2] *= saves
    startup = min(STARTUP_S, 0.02 * size.hours * 3600)
    length = _meet((seconds * 1e9).astype(np.int64))[:, -1, -1].max()
    factor = (size.hours * 3600 - startup) * 1e9 / length
    edges = _meet((seconds * factor * 1e9).astype(np.int64)) + int(startup * 1e9)
    return Loop(size, edges, tuple(phase for phase, _, _ in size.columns), int(startup * 1e9))


def _meet(stretches: Ints) -> Ints:
    """Edges of all stretches, with the waits at both barriers filled in.

    From the rewards' barrier to the next lengths' barrier takes as long as the slowest rank needs, and so does
    the way from there to the next rewards' barrier: both barriers are cumulative sums of maxima.
    """
    before = stretches[:, :, :LENGTHS_WAIT].sum(axis=2)
    between = stretches[:, :, LENGTHS_WAIT + 1 : GATHER_WAIT].sum(axis=2)
    after = stretches[:, :, GATHER_WAIT + 1 :].sum(axis=2)
    to_lengths = before + np.pad(after[:, :-1], ((0, 0), (1, 0)))
    slowest = np.stack([to_lengths.max(axis=0), between.max(axis=0)], axis=1)
    full = stretches.copy()
    full[:, :, LENGTHS_WAIT] = slowest[:, 0] - to_lengths
    full[:, :, GATHER_WAIT] = slowest[:, 1] - between
    ends = np.cumsum(full.reshape(len(full), -1), axis=1)
    starts = np.pad(ends[:, :-1], ((0, 0), (1, 0))).reshape(full.shape)
    return np.concatenate([starts, ends.reshape(full.shape)[:, :, -1:]], axis=2)


def _span_table(micro_steps: int) -> list[tuple[str, int, int]]:
    """Name, first and last edge of every span of a step, outermost first."""
    head, each = len(HEAD), len(MICRO)
    spans = [
        ("step", 0, head + each * micro_steps + len(TAIL)),
        ("GRPOTrainer._prepare_inputs", 1, GATHER_WAIT + 1),
        ("GRPOTrainer.sync_weights", 1, 2),
        ("GRPOTrainer.vLLM.generate", 2, 3),
        ("GRPOTrainer._get_per_token_logps_and_entropies", 5, 6),
        ("GRPOTrainer._calculate_rewards", REWARD, REWARD + 1),
        ("GRPOTrainer.property_reward", REWARD, REWARD + 1),
    ]
    for at in range(head, head + each * micro_steps, each):
        spans += [
            ("GRPOTrainer.compute_loss", at, at + 2),
            ("GRPOTrainer._get_per_token_logps_and_entropies", at, at + 1),
            ("backward", at + 2, at + 3),
        ]
    tail = head + each * micro_steps
    return [*spans, ("optimizer", tail, tail + 1), ("checkpoint", tail + 1, tail + 2)]


def spans(loop: Loop, rank: int) -> pl.DataFrame:
    """All spans of one rank, in the order in which they ended, as a recorder writes them."""
    table = _span_table(loop.size.micro_steps)
    edges = loop.edges[rank]
    t0, t1 = edges[:, [a for _, a, _ in table]], edges[:, [b for _, _, b in table]]
    names = pl.Series([name for name, _, _ in table], dtype=pl.Categorical)
    frame = pl.DataFrame({
        "t0_ns": t0.ravel() + EPOCH_NS,
        "t1_ns": t1.ravel() + EPOCH_NS,
        "name": names.gather(np.tile(np.arange(len(table)), loop.size.steps)),
        "step": np.repeat(np.arange(loop.size.steps), len(table)),
    })  # fmt: skip
    happened = frame.filter((pl.col("t1_ns") > pl.col("t0_ns")) | (pl.col("name") != "checkpoint"))
    same = {
        "host": HOST,
        "pid": _pid(rank),
        "tid": _pid(rank),
        "rank": rank,
        "origin": "measured",
        "clock": 0,
    }
    return happened.sort("t1_ns", maintain_order=True).with_columns(
        pl.lit(v).alias(k) for k, v in same.items()
    )


def jobs(loop: Loop, rank: int) -> pl.DataFrame:
    """Reward jobs of one rank: two workers share the reward phase, each with the same number of jobs in a row."""
    rng = np.random.default_rng([loop.size.seed, rank])
    each = max(1, loop.size.jobs // 2)
    start, end = loop.edges[rank, :, REWARD, None], loop.edges[rank, :, REWARD + 1, None]
    frames = []
    for worker in range(2):
        cuts = np.sort(rng.uniform(0.05, 0.9, (loop.size.steps, each - 1)), axis=1)
        first, last = np.zeros((loop.size.steps, 1)), np.full((loop.size.steps, 1), 1.0 - 0.1 * worker)
        shares = np.concatenate(
            [first, cuts, last], axis=1
        )  # one worker works to the end, one is done sooner
        edges = (start + (end - start) * shares).astype(np.int64) + EPOCH_NS
        rows = {
            "host": HOST, "rank": rank, "pid": _pid(rank) + 1 + worker,
            "job": [f"{k}-{worker}-{i}" for k in range(loop.size.steps) for i in range(each)],
            "step": np.repeat(np.arange(loop.size.steps), each), "submitted_ns": np.repeat(start[:, 0] + EPOCH_NS, each),
            "t0_ns": edges[:, :-1].ravel(), "t1_ns": edges[:, 1:].ravel(), "clock": 0,
        }  # fmt: skip
        frames.append(pl.DataFrame(rows))
    return pl.concat(frames).sort("t1_ns")


def _pid(rank: int) -> int:
    return 1000 + 10 * rank


def _signal(loop: Loop, rank: int, column: int, times: Ints, window_ns: int) -> Floats:
    """Mean level of one instrument over ``[t - window, t]``: what a windowed counter shows at t."""
    levels = np.asarray([LEVELS[phase][column] for phase in loop.phases])
    edges = np.concatenate([[0], loop.edges[rank, :, :-1].ravel(), loop.edges[rank, -1, -1:]])
    rate = np.concatenate([[LEVELS["startup"][column]], np.tile(levels, loop.size.steps)])
    sums = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges))])
    mean: Floats = (np.interp(times, edges, sums) - np.interp(times - window_ns, edges, sums)) / window_ns
    return mean


def telemetry(loop: Loop, start: Ints, rng: np.random.Generator) -> pl.DataFrame:
    """The poll of all GPUs: the counter is updated every 200 ms, polling faster repeats its value."""
    updated = start // COUNTER_WINDOW_NS * COUNTER_WINDOW_NS
    frames = []
    for gpu in range(loop.size.gpus):
        util, memory = (_signal(loop, gpu, column, updated, COUNTER_WINDOW_NS) for column in (0, 1))
        power = _signal(loop, gpu, 2, start, 1_000_000_000)  # power lags by about a second
        rows = {
            "host": HOST, "gpu": gpu, "t_ns": start + EPOCH_NS + 2000 * gpu, "window_ns": COUNTER_WINDOW_NS,
            "source": "poll", "util_pct": np.rint(util), "mem_util_pct": np.rint(memory),
            "mem_used_b": 92_000_000_000, "power_w": np.maximum(power + rng.normal(0, 0.6, len(start)), IDLE_W - 3),
            "sm_mhz": 1980.0, "temp_c": 45.0, "clock": 0,
        }  # fmt: skip
        frames.append(pl.DataFrame(rows))
    return pl.concat(frames).sort("t_ns", "gpu")


def counters(loop: Loop, start: Ints) -> pl.DataFrame:
    """GPM-like counters of all GPUs, mean since the sample before."""
    window = int(1e9 / loop.size.counters_hz)
    frames = []
    for gpu in range(loop.size.gpus):
        active, sm, dram, tensor = (_signal(loop, gpu, column, start, window) for column in (0, 3, 4, 5))
        rows = {
            "host": HOST, "gpu": gpu, "t_ns": start + EPOCH_NS + 2000 * gpu, "window_ns": window,
            "gr_active_pct": active, "sm_active_pct": sm, "tensor_active_pct": tensor, "dram_active_pct": dram,
            "pcie_rx_mib_s": np.where(sm > 2, 40.0, 0.4), "pcie_tx_mib_s": 5.0, "clock": 0,
        }  # fmt: skip
        frames.append(pl.DataFrame(rows))
    return pl.concat(frames).sort("t_ns", "gpu")


def _ticks(size: Size, hz: float, chunk: int = 36_000) -> Iterator[Ints]:
    period = int(1e9 / hz)
    ticks = np.arange(1, int(size.hours * 3600 * hz) + 1, dtype=np.int64) * period
    yield from (ticks[at : at + chunk] for at in range(0, len(ticks), chunk))


def tables(loop: Loop) -> Iterator[tuple[str, pl.DataFrame]]:
    """All rows of the recording, table by table, in chunks that fit a small machine."""
    rng = np.random.default_rng(loop.size.seed)
    for ticks in _ticks(loop.size, loop.size.hz):
        yield "gpu", telemetry(loop, ticks, rng)
    if loop.size.counters_hz:
        for ticks in _ticks(loop.size, loop.size.counters_hz):
            yield "gpu_counters", counters(loop, ticks)
    for rank in range(loop.size.gpus):
        yield "spans", spans(loop, rank)
        yield "jobs", jobs(loop, rank)
    yield "processes", pl.DataFrame(_processes(loop.size))
    yield "gpus", pl.DataFrame([_gpu(gpu) for gpu in range(loop.size.gpus)])


def _processes(size: Size) -> list[dict[str, Any]]:
    """One trainer+engine and two reward workers a GPU, as in TRL's colocate mode."""
    roles = ("trainer+engine", "reward_worker", "reward_worker")
    return [
        {"host": HOST, "pid": _pid(rank) + i, "role": role, "rank": rank, "gpu": rank, "source": "synthetic"}
        for rank in range(size.gpus)
        for i, role in enumerate(roles)
    ]


def _gpu(gpu: int) -> dict[str, Any]:
    return {
        "host": HOST, "gpu": gpu, "name": "Synthetic H200", "uuid": f"GPU-{gpu}", "mem_total_b": 150_000_000_000,
        "util_window_ns": COUNTER_WINDOW_NS,
    }  # fmt: skip


def write(size: Size, out: Path) -> dict[str, Any]:
    """Write the recording and its truth; returns the truth."""
    loop = plan(size)
    source = f"synthetic GRPO loop, {size.gpus} ranks"
    with RecordingWriter.create(out, origin="measured", host=HOST, source=source, force=True) as writer:
        for table, frame in tables(loop):
            writer.append(table, frame)
    truth = loop.truth()
    out.with_name(f"{out.name}.truth.json").write_text(json.dumps(truth, indent=1))
    return truth


def main() -> int:
    """Command line: one option a field of :class:`Size`."""
    parser = argparse.ArgumentParser(description="Write a synthetic recording with planted truth.")
    parser.add_argument("out", type=Path, help="folder to write (replaced if it is a recording)")
    for name, kind in Size.__annotations__.items():
        default = Size.__dataclass_fields__[name].default
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int if kind == "int" else float, default=default
        )
    options = vars(parser.parse_args())
    truth = write(Size(**{name: options[name] for name in Size.__annotations__}), options["out"])
    print(f"{options['out']}: {truth['steps']} steps", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
