"""What a GPU was really doing while ``utilization.gpu`` said "busy".

``utilization.gpu`` is the share of time in which any kernel (or bus copy) ran; a rank waiting inside an
NCCL collective reads 100 % at idle power, and so does a host-to-device copy. The counters tell them apart.
Rules and thresholds: docs/states.md, fitted on H200 recordings whose truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dipstick.analysis.intervals import Cuts, between, indicator, lay
from dipstick.analysis.telemetry import TRACED
from dipstick.model import STATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from dipstick.analysis.telemetry import Series, Signals
    from dipstick.model import CodeArray, FloatArray, IntArray

    Mask = npt.NDArray[np.bool_]

CODE: dict[str, int] = {name: code for code, name in enumerate(STATES)}

SM_QUIET = 0.05
SM_QUIET_IN_COLLECTIVE = 0.25
DRAM_QUIET = 0.02
TENSOR_QUIET = 0.005
BUS_COPY_MIB_S = 5 * 1024.0
LAUNCHING_MIB_S = 5.0
SPIN_ACTIVE = 0.5
DEVICE_COPY_DRAM = 0.8
LIGHT_SM = 0.5
FULL_CLOCK = 0.95
IDLE_POWER_PERCENTILE = 1.0
IDLE_POWER_FACTOR = 1.15
PLATEAU_OF_PEAK = 0.6
UTIL_FULL_PCT = 95.0
TRACED_AS = {
    "kernel_work_pct": "compute", "copy_device_pct": "copying_device", "copy_bus_pct": "copying_bus",
    "comm_alone_pct": "waiting_or_bus_copy",
}  # fmt: skip
MEM_UTIL_QUIET_PCT = 5.0
"""A pinned host-to-device copy reads 2 % at idle power on an H200, more where memory is slower; a wait reads 0,
and at full utilization and idle power our runs hold nothing in between (docs/states.md)."""


_NEVER: tuple[IntArray, IntArray] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Context:
    """What other layers know about a GPU's windows. Disjoint intervals in ns.

    Attributes:
        waits: When a rank of this GPU is known to wait at a barrier (its peer is late).
        copies: When device-to-device copies are expected (weight sync, checkpoint, sleep, wake).
        window: The analysis window, in which idle power is learned.
        device_waits: When a collective's kernel on this GPU only waited for other ranks (from all ranks' traces).
        transfers: When one moved data.
    """

    waits: tuple[IntArray, IntArray]
    copies: tuple[IntArray, IntArray]
    window: tuple[int, int]
    device_waits: tuple[IntArray, IntArray] = _NEVER
    transfers: tuple[IntArray, IntArray] = _NEVER


@dataclass(frozen=True, slots=True)
class StateSeries:
    """States of one GPU: in window i, ``active[i]`` of the time is ``code[i]``, the rest is idle.

    Attributes:
        active: Active share 0-1; NaN (utilization not measured) makes the whole window ``unknown``.
        memory_bound: Windows of ``compute`` whose DRAM was busy 80 % of the active time.
        idle_power_w: Board power at full clock without work, if it could be learned.
    """

    windows: Series
    active: FloatArray
    code: CodeArray
    memory_bound: Mask
    idle_power_w: float | None
    method: Literal["counters", "trace", "power", "utilization"]

    def rate(self, state: int) -> FloatArray:
        """Per window, the share of time in one state; over all states the rates add up to 1."""
        active = np.where(np.isnan(self.active), 1.0, self.active)
        if state == CODE["idle"]:
            return 1.0 - active
        return np.where(self.code == state, active, 0.0)

    def seconds(self, state: int, starts: IntArray, ends: IntArray) -> FloatArray:
        """GPU-seconds in one state inside each interval."""
        laid = lay(self.windows.t0, self.windows.t1)
        until = [Cuts(laid.edges, at).integral(laid.rate(self.rate(state))) for at in (starts, ends)]
        return until[1] / 1e9 - until[0] / 1e9

    def totals(self, start: int, end: int) -> FloatArray:
        """GPU-seconds by state code inside one interval; they add up to its recorded time."""
        width = np.clip(self.windows.t1, start, end) - np.clip(self.windows.t0, start, end)
        active = np.where(np.isnan(self.active), 1.0, self.active) * width
        total = np.bincount(self.code, active, len(STATES))
        total[CODE["idle"]] = (width - active).sum()
        return total / 1e9

    def seconds_between(self, times: IntArray) -> Iterator[tuple[int, FloatArray]]:
        """Each state that occurs, with its GPU-seconds between neighbouring instants."""
        laid = lay(self.windows.t0, self.windows.t1)
        cuts = Cuts(laid.edges, times)
        present = {CODE["idle"], *np.unique(self.code).tolist()}
        for state in sorted(present):
            yield state, np.diff(cuts.integral(laid.rate(self.rate(state))) / 1e9)


def classify(signals: Signals, context: Context, *, understood: bool = True) -> StateSeries:
    """Give each window's active share one state; first matching rule wins.

    Args:
        signals: One GPU's telemetry.
        context: Known waits and copy spans of the ranks on that GPU.
        understood: False for devices whose signals are not understood yet (MIG, AMD): all ``unknown``.
    """
    active = signals.windows.value / 100.0
    waiting = _inside(signals.windows, *context.waits)
    power = idle_power(signals, context.window)
    code = np.full(len(active), CODE["unknown"], np.uint8)
    profiled = ~np.isnan(signals.counters["sm_active_pct"])
    bound = np.zeros(len(active), np.bool_)
    if understood:
        code = _by_power(signals, power, waiting)
    if understood and profiled.any():
        copying = _inside(signals.windows, *context.copies)
        by_counters, bound = _by_counters(signals, active, waiting, copying)
        code = np.where(profiled, by_counters, code).astype(np.uint8)
    traced = ~np.isnan(signals.counters[TRACED])
    if traced.any():
        code = np.where(traced, _by_trace(signals, context, waiting), code).astype(np.uint8)
    code[np.isnan(active)] = CODE["unknown"]
    code[active == 0] = CODE["idle"]
    return StateSeries(
        signals.windows,
        active,
        code,
        bound & profiled,
        power,
        "trace" if traced.any() else _method(profiled, power, understood=understood),
    )


def _method(
    profiled: Mask, power: float | None, *, understood: bool
) -> Literal["counters", "power", "utilization"]:
    if understood and profiled.any():
        return "counters"
    return "power" if understood and power is not None else "utilization"


def _inside(windows: Series, starts: IntArray, ends: IntArray) -> Mask:
    """Windows that lie at least half inside the intervals."""
    half: Mask = _covered_ns(windows, starts, ends) >= 0.5 * (windows.t1 - windows.t0)
    return half


def _covered_ns(windows: Series, starts: IntArray, ends: IntArray) -> FloatArray:
    """Of each window, what lies inside the intervals."""
    edges, rate = indicator(starts, ends)
    (inside,) = between(edges, [rate], windows.t0, windows.t1)
    return inside


def _by_counters(s: Signals, active: FloatArray, waiting: Mask, copying: Mask) -> tuple[CodeArray, Mask]:
    """Rules 1-5 on SM, DRAM and tensor activity divided by the active share.

    Without the PCIe counter a wait and a bus copy look alike: only a known wait is called spinning then.
    """
    share = np.maximum(active, 1e-9)
    sm, dram = s.counters["sm_active_pct"] / 100 / share, s.counters["dram_active_pct"] / 100 / share
    tensor = s.counters["tensor_active_pct"] / 100 / share
    rx = s.counters["pcie_rx_mib_s"]
    bus = np.fmax.reduce(
        [rx, s.counters["pcie_tx_mib_s"], s.counters["nvlink_rx_mib_s"], s.counters["nvlink_tx_mib_s"]]
    )
    quiet = sm <= SM_QUIET
    quiet_here = quiet | (waiting & (sm <= SM_QUIET_IN_COLLECTIVE))
    still = ~(dram > DRAM_QUIET) & ~(tensor > TENSOR_QUIET) & ~(rx >= LAUNCHING_MIB_S)
    hollow = (active >= SPIN_ACTIVE) & quiet_here & still
    memory = _lasting((dram >= DEVICE_COPY_DRAM) & ~(tensor >= TENSOR_QUIET))
    code = np.select(
        [
            quiet & (bus >= BUS_COPY_MIB_S),
            hollow & np.isnan(rx) & ~waiting,
            hollow,
            memory & copying,
            sm < LIGHT_SM,
        ],
        [
            CODE["copying_bus"],
            CODE["waiting_or_bus_copy"],
            CODE["spinning"],
            CODE["copying_device"],
            CODE["light"],
        ],
        CODE["compute"],
    ).astype(np.uint8)
    return code, memory & (code == CODE["compute"])


def _by_trace(s: Signals, context: Context, waiting: Mask) -> CodeArray:
    """From a trace of every kernel and copy: what ran for most of the window's busy time.

    A communication kernel that runs alone moves data or waits for its peers: whichever more of the window is known to be,
    if that is half of the kernel's time. A trace of one rank can't say.
    """
    shares = np.stack([s.counters[name] for name in TRACED_AS])
    most = np.nan_to_num(shares).argmax(axis=0)
    code: CodeArray = np.asarray([CODE[name] for name in TRACED_AS.values()], np.uint8)[most]
    alone = code == CODE["waiting_or_bus_copy"]
    waited, moved = (_covered_ns(s.windows, *part) for part in (context.device_waits, context.transfers))
    length = s.counters["comm_alone_pct"] / 100 * (s.windows.t1 - s.windows.t0)
    known = waited + moved >= 0.5 * length
    code[alone & waiting] = CODE["spinning"]
    code[alone & known] = np.where(waited >= moved, CODE["spinning"], CODE["copying_bus"])[alone & known]
    return code


def _lasting(mask: Mask) -> Mask:
    """Only windows that have a like neighbour: two windows or more."""
    before, after = np.roll(mask, 1), np.roll(mask, -1)
    before[:1], after[-1:] = False, False
    return mask & (before | after)


def idle_power(signals: Signals, window: tuple[int, int]) -> float | None:
    """Board power (W) without work at full SM clock, or None where no idle plateau shows.

    The 1st percentile of power among windows at 95 % of the highest SM clock or more, inside the analysis
    window (an unused board idles far lower, at a low clock). It counts only if it lies clearly below the
    busiest power: a GPU that never rests has no plateau to learn from.
    """
    power, clock = signals.polled["power_w"], signals.polled["sm_mhz"]
    inside = (signals.windows.t1 > window[0]) & (signals.windows.t0 < window[1]) & ~np.isnan(power)
    if not inside.any():
        return None
    if not np.isnan(clock[inside]).all():
        inside &= clock >= FULL_CLOCK * np.nanmax(clock[inside])
    low, high = np.percentile(power[inside], [IDLE_POWER_PERCENTILE, 100 - IDLE_POWER_PERCENTILE])
    return float(low) if low <= PLATEAU_OF_PEAK * high else None


def _by_power(s: Signals, idle_w: float | None, waiting: Mask) -> CodeArray:
    """Without counters: full utilization at idle power is hollow; what draws power or memory is work.

    ``light`` cannot be told from ``compute`` here, and low power below full utilization can be either
    tiny kernels or a wait: that stays ``unknown``.
    """
    code = np.full(len(s.windows.value), CODE["unknown"], np.uint8)
    if idle_w is None:
        return code
    power, memory = s.polled["power_w"], s.polled["mem_util_pct"]
    at_rest = power <= IDLE_POWER_FACTOR * idle_w
    no_memory = ~(memory > MEM_UTIL_QUIET_PCT)
    hollow = (s.windows.value >= UTIL_FULL_PCT) & at_rest & no_memory
    code[(power > IDLE_POWER_FACTOR * idle_w) | (memory > MEM_UTIL_QUIET_PCT)] = CODE["compute"]
    code[hollow] = CODE["waiting_or_bus_copy"]
    code[hollow & waiting] = CODE["spinning"]
    return code
