"""What the instruments would have shown of a planted loop: windowed counters that lag, repeat and round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from dipstick.selftest.levels import IDLE_W, LEVELS, SIGNALS
from dipstick.selftest.loop import COLUMNS, LEVEL_OF

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.model import FloatArray, IntArray
    from dipstick.selftest.loop import Loop

HOST: Final = "selftest"
EPOCH_NS: Final = 1_800_000_000_000_000_000
POWER_WINDOW_NS: Final = 1_000_000_000
PROCESS_PERIOD_NS: Final = 1_000_000_000
SM_MHZ: Final = 1980.0
TOTAL_B, USED_B = 150_754_820_096, 92_000_000_000
NOISE: Final = {"util_pct": 0.7, "mem_util_pct": 0.7, "power_w": 0.6}
RELATIVE_NOISE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the run was watched.

    Attributes:
        period_s: Distance of two samples; each is the mean over the ``window_s`` before its stamp.
        counters: Whether SM, DRAM and PCIe counters were read beside utilization.
        power: Whether board power and clock were.
    """

    period_s: float = 0.2
    window_s: float = 0.2
    counters: bool = True
    power: bool = True


@dataclass(frozen=True, slots=True)
class Extra:
    """Something that adds to a GPU's signals while it lasts: a spike after a call, another process.

    Attributes:
        start_s, end_s: (n,) when.
        adds: Signal -> what it adds; percentages stop at 100.
        pid: The process, if it is not the trainer's.
    """

    start_s: FloatArray
    end_s: FloatArray
    adds: Mapping[str, float]
    pid: int | None = None

    def share(self, ends: IntArray, window_ns: int) -> FloatArray:
        """(m,) share of each window in which it goes on."""
        edges = np.stack([self.start_s, self.end_s], axis=1).ravel() * 1e9
        done = np.concatenate([[0.0], np.cumsum(np.diff(edges) * (np.arange(len(edges) - 1) % 2 == 0))])
        share: FloatArray = (
            np.interp(ends, edges, done) - np.interp(ends - window_ns, edges, done)
        ) / window_ns
        return share


@dataclass(frozen=True, slots=True)
class Scene:
    """A loop, what else happens on its GPUs, and levels that differ from the usual ones."""

    loop: Loop
    extras: tuple[Extra, ...] = ()
    levels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def mean(self, rank: int, signal: str, ends: IntArray, window_ns: int) -> FloatArray:
        """(m,) mean of one signal of a rank's GPU over ``[end - window, end]``."""
        table = LEVELS | dict(self.levels)
        column = SIGNALS.index(signal)
        rate = np.asarray([table[LEVEL_OF.get(name, name)][column] for name in COLUMNS])
        edges = np.append(self.loop.edges[rank, :, :-1].ravel(), self.loop.edges[rank, -1, -1])
        idle = table["idle"][column]
        value = np.concatenate([[idle], np.tile(rate, self.loop.plan.steps), [idle]])
        cuts = np.concatenate([[0], edges, [self.loop.end_ns]]).astype(np.float64)
        sums = np.concatenate([[0.0], np.cumsum(value * np.diff(cuts))])
        mean: FloatArray = (np.interp(ends, cuts, sums) - np.interp(ends - window_ns, cuts, sums)) / window_ns
        for extra in self.extras:
            mean = mean + extra.adds.get(signal, 0.0) * extra.share(ends, window_ns)
        return np.minimum(mean, 100.0) if signal.endswith("_pct") else mean


def telemetry(scene: Scene, sampling: Sampling, rng: np.random.Generator) -> pl.DataFrame:
    """The ``gpu`` table of all GPUs: utilization over its window, power over the second before."""
    ends, window = _stamps(scene, sampling), int(sampling.window_s * 1e9)
    frames = []
    for gpu in range(scene.loop.plan.ranks):
        columns = {
            name: _noisy(
                name, scene.mean(gpu, name, ends, POWER_WINDOW_NS if name == "power_w" else window), rng
            )
            for name in ("util_pct", "mem_util_pct", *(("power_w",) if sampling.power else ()))
        }
        if sampling.power:
            columns["sm_mhz"] = np.full(len(ends), SM_MHZ)
        frames.append(_rows(gpu, ends, window, columns, source="buffer", mem_used_b=USED_B))
    return pl.concat(frames).sort("t_ns", "gpu")


def counters(scene: Scene, sampling: Sampling, rng: np.random.Generator) -> pl.DataFrame:
    """The ``gpu_counters`` table."""
    ends, window = _stamps(scene, sampling), int(sampling.window_s * 1e9)
    frames = []
    for gpu in range(scene.loop.plan.ranks):
        columns = {name: _noisy(name, scene.mean(gpu, name, ends, window), rng) for name in SIGNALS[3:]}
        active = scene.mean(gpu, "util_pct", ends, window)
        copies = columns["pcie_rx_mib_s"] > 5 * 1024  # the graphics engine rests during a bus copy
        columns |= {"gr_active_pct": np.where(copies, 0.0, active), "pcie_tx_mib_s": np.full(len(ends), 5.0)}
        frames.append(_rows(gpu, ends, window, columns))
    return pl.concat(frames).sort("t_ns", "gpu")


def processes(scene: Scene, pids: Mapping[int, int]) -> pl.DataFrame:
    """The ``gpu_process`` table at 1 Hz: each rank's trainer, and whoever else works on its GPU.

    Args:
        scene: The loop.
        pids: Rank -> pid of its trainer.
    """
    ends = np.arange(PROCESS_PERIOD_NS, scene.loop.end_ns, PROCESS_PERIOD_NS, dtype=np.int64)
    frames = []
    for gpu, pid in pids.items():
        bare = Scene(scene.loop, (), scene.levels)
        sm = bare.mean(gpu, "sm_active_pct", ends, PROCESS_PERIOD_NS)
        mem = bare.mean(gpu, "mem_util_pct", ends, PROCESS_PERIOD_NS)
        frames.append(
            _rows(gpu, ends, PROCESS_PERIOD_NS, {"sm_pct": np.rint(sm), "mem_pct": np.rint(mem)}, pid=pid)
        )
        for extra in (e for e in scene.extras if e.pid is not None):
            share = extra.share(ends, PROCESS_PERIOD_NS)
            seen = share > 0
            adds = {"sm_pct": "sm_active_pct", "mem_pct": "mem_util_pct"}
            columns = {name: np.rint(share[seen] * extra.adds.get(of, 0.0)) for name, of in adds.items()}
            frames.append(_rows(gpu, ends[seen], PROCESS_PERIOD_NS, columns, pid=extra.pid))
    return pl.concat(frames).sort("t_ns", "gpu")


def _stamps(scene: Scene, sampling: Sampling) -> IntArray:
    period = int(sampling.period_s * 1e9)
    return np.arange(period, scene.loop.end_ns, period, dtype=np.int64)


def _noisy(name: str, value: FloatArray, rng: np.random.Generator) -> FloatArray:
    """NVML rounds percentages and knows no idle board below its idle power; the counters err by 2 %."""
    if name not in NOISE:
        return np.maximum(value * (1 + rng.normal(0, RELATIVE_NOISE, len(value))), 0.0)
    noisy = value + rng.normal(0, NOISE[name], len(value))
    if name == "power_w":
        return np.maximum(noisy, IDLE_W - 3)
    return np.where(value > 0, np.clip(np.rint(noisy), 0, 100), 0.0)


def _rows(
    gpu: int,
    ends: IntArray,
    window_ns: int,
    columns: Mapping[str, FloatArray | float],
    **same: float | str | None,
) -> pl.DataFrame:
    """Rows of one GPU; stamps of different GPUs are a few µs apart, as polls are."""
    stamped = {
        "host": HOST,
        "gpu": gpu,
        "t_ns": ends + EPOCH_NS + 2000 * gpu,
        "window_ns": window_ns,
        "clock": 0,
    }
    return pl.DataFrame(stamped | dict(columns) | same)
