"""What a GPU really did while it read as busy: the table of known loads, the rules one by one, and adding up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.analysis.states import CODE, Context, StateSeries, classify, idle_power
from dipstick.analysis.telemetry import COUNTERS, POLLED, Series, Signals, read_signals
from dipstick.model import STATES
from records import Row, counters, near, ns, table, times, utilization

NAN = float("nan")
Where = Literal["nowhere", "copy", "wait"]


@dataclass(frozen=True)
class Load:
    """A known load as the instruments of an H200 see it (traces/README.md, "Measured facts")."""

    util: float
    mem_util: float
    power: float
    sm: float
    dram: float
    tensor: float = 0.0
    rx: float = 0.2
    extra: dict[str, Any] = field(default_factory=dict)


IDLE = Load(0, 0, 122, 0, 0)
MATMUL = Load(99, 23, 685, 96, 16, tensor=60)
DEVICE_COPY = Load(99, 100, 463, 99, 88)
HOST_COPY = Load(100, 2, 126, 0, 1, rx=56 * 1024)
TINY_KERNELS = Load(32, 0, 119, 0.1, 0, rx=40)
HALF_MATMUL = Load(49, 13, 535, 42, 9.5, tensor=28)
NCCL_WAIT = Load(100, 0, 122, 0.8, 0, rx=0.4)

EACH = 10
"""Windows (of 0.2 s) of each load: first idle, then matmul (so that idle power can be learned), then the load."""


def rows_of(load: Load, start: float) -> tuple[list[Row], list[Row]]:
    """Two seconds of a load: utilization rows and counter rows."""
    gpu = utilization(
        [load.util] * EACH, start=start, mem_util_pct=load.mem_util, power_w=load.power, sm_mhz=1980.0
    )
    profile = counters(
        [load.sm] * EACH, start=start, gr_active_pct=load.util, dram_active_pct=load.dram,
        tensor_active_pct=load.tensor, pcie_rx_mib_s=load.rx, **load.extra,
    )  # fmt: skip
    return gpu, profile


def context(where: Where = "nowhere", *, window: tuple[float, float] = (0, 100)) -> Context:
    """The load's two seconds, [4, 6), as a known wait or as a weight sync."""
    none, there = (times(), times()), (times(4), times(6))
    return Context(
        there if where == "wait" else none, there if where == "copy" else none, (ns(window[0]), ns(window[1]))
    )


def observed(load: Load, where: Where = "nowhere", *, profiled: bool = True, **blind: Any) -> StateSeries:
    """States of idle, matmul, load; ``blind`` columns are taken away from the counters."""
    parts = [rows_of(one, 2.0 * i) for i, one in enumerate((IDLE, MATMUL, load))]
    profile = [row | blind for _, rows in parts for row in rows] if profiled else []
    found = read_signals(
        table("gpu", [row for rows, _ in parts for row in rows]), table("gpu_counters", profile)
    )
    return classify(found[0], context(where))


def shares(states: StateSeries) -> dict[str, float]:
    """Percent of the load's two seconds in each state, without the states that do not occur."""
    percent = {name: float(states.seconds(code, times(4), times(6))[0]) * 50 for name, code in CODE.items()}
    return {name: near(p, abs=1e-6) for name, p in percent.items() if p > 1e-6}


# The table of known loads


@pytest.mark.parametrize(
    ("load", "where", "expected"),
    [
        pytest.param(IDLE, "nowhere", {"idle": 100}, id="idle"),
        pytest.param(MATMUL, "nowhere", {"compute": 99, "idle": 1}, id="matmul"),
        pytest.param(
            DEVICE_COPY, "copy", {"copying_device": 99, "idle": 1}, id="d2d copies in a weight sync"
        ),
        pytest.param(DEVICE_COPY, "nowhere", {"compute": 99, "idle": 1}, id="d2d copies elsewhere"),
        pytest.param(HOST_COPY, "nowhere", {"copying_bus": 100}, id="h2d copies"),
        pytest.param(HOST_COPY, "wait", {"copying_bus": 100}, id="h2d copies while a peer is late"),
        pytest.param(TINY_KERNELS, "nowhere", {"light": 32, "idle": 68}, id="tiny kernels"),
        pytest.param(HALF_MATMUL, "nowhere", {"compute": 49, "idle": 51}, id="matmul, 50 % duty"),
        pytest.param(NCCL_WAIT, "nowhere", {"spinning": 100}, id="NCCL wait"),
        pytest.param(NCCL_WAIT, "wait", {"spinning": 100}, id="NCCL wait behind a late peer"),
    ],
)
def test_known_loads_with_counters(load: Load, where: Where, expected: dict[str, float]) -> None:
    """With GPM every row of the table is told from every other."""
    states = observed(load, where)

    assert shares(states) == expected
    assert states.method == "counters"


@pytest.mark.parametrize(
    ("load", "where", "expected"),
    [
        pytest.param(IDLE, "nowhere", {"idle": 100}, id="idle"),
        pytest.param(MATMUL, "nowhere", {"compute": 99, "idle": 1}, id="matmul"),
        pytest.param(DEVICE_COPY, "copy", {"compute": 99, "idle": 1}, id="d2d copies"),
        pytest.param(HOST_COPY, "nowhere", {"waiting_or_bus_copy": 100}, id="h2d copies"),
        pytest.param(TINY_KERNELS, "nowhere", {"unknown": 32, "idle": 68}, id="tiny kernels"),
        pytest.param(HALF_MATMUL, "nowhere", {"compute": 49, "idle": 51}, id="matmul, 50 % duty"),
        pytest.param(NCCL_WAIT, "nowhere", {"waiting_or_bus_copy": 100}, id="NCCL wait"),
        pytest.param(NCCL_WAIT, "wait", {"spinning": 100}, id="NCCL wait behind a late peer"),
    ],
)
def test_known_loads_without_counters(load: Load, where: Where, expected: dict[str, float]) -> None:
    """Power tells work from no work; which kind of no work only a late peer can tell."""
    states = observed(load, where, profiled=False)

    assert shares(states) == expected
    assert states.method == "power"


def test_device_copies_outside_copy_spans_are_flagged_as_memory_bound() -> None:
    """Optimizers and decode look alike: the state is compute, the flag says what bounds it."""
    assert observed(DEVICE_COPY).memory_bound.tolist() == [False] * 2 * EACH + [True] * EACH
    assert not observed(DEVICE_COPY, "copy").memory_bound.any()
    assert not observed(MATMUL).memory_bound.any()


# The rules, one by one


def changed(load: Load, **changes: Any) -> Load:
    """The load with other readings."""
    return Load(**({name: getattr(load, name) for name in Load.__dataclass_fields__} | changes))


def state_of(load: Load, where: Where = "nowhere", **blind: Any) -> str:
    """The state of the load's busy time."""
    busy = [name for name in shares(observed(load, where, **blind)) if name != "idle"]
    assert len(busy) == 1
    return busy[0]


@pytest.mark.parametrize("way", ["pcie_tx_mib_s", "nvlink_rx_mib_s", "nvlink_tx_mib_s"])
def test_every_bus_counts_for_a_bus_copy(way: str) -> None:
    """Device to host, and over NVLink: 6 GiB/s without SM work."""
    assert state_of(changed(NCCL_WAIT, extra={way: 6 * 1024.0})) == "copying_bus"


@pytest.mark.parametrize(("gib_s", "state"), [(4.9, "light"), (5.0, "copying_bus")])
def test_a_bus_copy_moves_at_least_5_gib_a_second(gib_s: float, state: str) -> None:
    """Below that something else keeps the GPU "busy"; it is not spinning, for somebody feeds it."""
    assert state_of(changed(HOST_COPY, rx=gib_s * 1024)) == state


def test_a_rank_that_launches_kernels_does_not_spin() -> None:
    """Commands cross the bus: 10 MiB/s of PCIe traffic is light work."""
    assert state_of(changed(NCCL_WAIT, rx=10)) == "light"


@pytest.mark.parametrize(("where", "state"), [("wait", "spinning"), ("nowhere", "light")])
def test_inside_a_known_wait_more_sm_activity_is_still_spinning(where: Where, state: str) -> None:
    """Ring kernels on more SMs: 20 % of the SMs spin where a peer is known to be late."""
    assert state_of(changed(NCCL_WAIT, sm=20), where) == state


@pytest.mark.parametrize("change", [{"dram": 3}, {"tensor": 1}, {"sm": 30}, {"util": 49}])
def test_what_moves_data_or_works_does_not_spin(change: dict[str, float]) -> None:
    """DRAM traffic, tensor cores, 30 % of the SMs, or less than half of the window: no spinning, wait or not."""
    assert state_of(changed(NCCL_WAIT, **change), "wait") == "light"


def test_without_the_pcie_counter_a_wait_can_t_be_told_from_a_bus_copy() -> None:
    """Both read full utilization without SM work: never guess, unless the peer is known to be late."""
    assert state_of(HOST_COPY, pcie_rx_mib_s=None) == "waiting_or_bus_copy"
    assert state_of(NCCL_WAIT, pcie_rx_mib_s=None) == "waiting_or_bus_copy"
    assert state_of(NCCL_WAIT, "wait", pcie_rx_mib_s=None) == "spinning"


def test_one_window_of_dense_memory_traffic_is_no_device_copy() -> None:
    """Two windows in a row or more, as a copy of weights takes."""
    dense = [0, 88, 0, 88, 88, 0]
    gpu = utilization([99] * 6, start=4.0)
    profile = counters([99] * 6, start=4.0, gr_active_pct=99.0, dram_active_pct=[float(d) for d in dense])

    states = classify(read_signals(table("gpu", gpu), table("gpu_counters", profile))[0], context("copy"))

    assert [STATES[c] for c in states.code] == ["compute"] * 3 + ["copying_device"] * 2 + ["compute"]


def test_tensor_work_at_full_memory_speed_is_compute() -> None:
    """Decoding inside a weight-sync span (overlapped) is no copy."""
    assert state_of(changed(DEVICE_COPY, tensor=5), "copy") == "compute"


def test_a_context_counts_where_it_covers_half_of_a_window() -> None:
    """A wait on [0.09, 0.31): 55 % of the first window, 55 % of the second, nothing of the third."""
    gpu = utilization([100] * 3)
    profile = counters([20] * 3, gr_active_pct=100.0)
    waits = (times(0.09), times(0.31))

    states = classify(
        read_signals(table("gpu", gpu), table("gpu_counters", profile))[0],
        Context(waits, (times(), times()), (0, ns(1))),
    )

    assert [STATES[c] for c in states.code] == ["spinning", "spinning", "light"]


def test_a_device_that_is_not_understood_stays_unknown() -> None:
    """MIG and AMD: utilization is believed, nothing else; idle time is still idle."""
    gpu, profile = rows_of(HALF_MATMUL, 4.0)
    one = read_signals(table("gpu", gpu), table("gpu_counters", profile))[0]

    states = classify(one, context(), understood=False)

    assert shares(states) == {"unknown": 49, "idle": 51}
    assert states.method == "utilization"


def test_utilization_alone_says_busy_or_idle_and_no_more() -> None:
    """No counters, no power."""
    one = read_signals(table("gpu", utilization([40] * EACH, start=4.0)), table("gpu_counters"))[0]

    states = classify(one, context())

    assert shares(states) == {"unknown": 40, "idle": 60}
    assert states.method == "utilization"
    assert states.idle_power_w is None


def test_windows_without_counters_fall_back_to_power() -> None:
    """GPM stopped before the load began: power still tells that the GPU did nothing."""
    parts = [rows_of(one, 2.0 * i) for i, one in enumerate((IDLE, MATMUL, NCCL_WAIT))]
    gpu = [row for rows, _ in parts for row in rows]
    profile = [row for _, rows in parts[:2] for row in rows]

    states = classify(read_signals(table("gpu", gpu), table("gpu_counters", profile))[0], context())

    assert shares(states) == {"waiting_or_bus_copy": 100}


# Idle power


def powered(*stretches: tuple[float, float, float]) -> Signals:
    """Stretches of two seconds: (utilization, power, SM clock)."""
    rows = []
    for i, (util, power, clock) in enumerate(stretches):
        rows += utilization([util] * EACH, start=2.0 * i, power_w=power, sm_mhz=clock)
    return read_signals(table("gpu", rows), table("gpu_counters"))[0]


def test_idle_power_is_learned_at_full_clock() -> None:
    """Before the CUDA context the board rests at 78 W and 345 MHz; that is not what a waiting rank draws."""
    assert idle_power(powered((0, 78, 345), (0, 122, 1980), (99, 685, 1980)), (0, ns(6))) == 122


def test_idle_power_is_learned_inside_the_window() -> None:
    """Full clock outside of the analysis window does not count."""
    assert idle_power(powered((0, 90, 1980), (0, 122, 1980), (99, 685, 1980)), (ns(2), ns(6))) == 122


def test_a_gpu_that_never_rests_has_no_idle_power() -> None:
    """Between 600 and 685 W there is no plateau to learn from, and nothing is guessed from power."""
    signals = powered((99, 600, 1980), (99, 685, 1980))

    assert idle_power(signals, (0, ns(4))) is None
    assert {STATES[c] for c in classify(signals, context()).code} == {"unknown"}


def test_power_without_a_clock_reading_is_still_used() -> None:
    """``nvidia-smi`` logs often have power only."""
    rows = [*utilization([0] * EACH, power_w=120.0), *utilization([99] * EACH, start=2.0, power_w=600.0)]

    assert idle_power(read_signals(table("gpu", rows), table("gpu_counters"))[0], (0, ns(4))) == 120


# Adding up


@st.composite
def any_signals(draw: st.DrawFn) -> Signals:
    """Windows with any readings at all, NaN among them, and gaps between them."""
    n = draw(st.integers(0, 6))
    edges = np.cumsum(draw(st.lists(st.integers(1, 10**9), min_size=2 * n, max_size=2 * n)) or [0])
    t0, t1 = edges[0 : 2 * n : 2].astype(np.int64), edges[1 : 2 * n : 2].astype(np.int64)

    def column(top: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        reading = st.one_of(st.floats(0, top), st.just(NAN), st.sampled_from([0.0, top]))
        return np.array(draw(st.lists(reading, min_size=n, max_size=n)), np.float64)

    windows = Series(t0, t1, column(100))
    tops = {name: 100.0 if name.endswith("_pct") else 60_000.0 for name in (*COUNTERS, *POLLED)}
    measured = {name: column(top) for name, top in tops.items()}
    return Signals(
        "h", 0, windows, windows, windows, {c: measured[c] for c in COUNTERS}, {p: measured[p] for p in POLLED},
        "buffer", 1, 1, times(), 0,
    )  # fmt: skip


@given(any_signals(), st.booleans(), st.sampled_from(["nowhere", "wait", "copy"]))
def test_rates_of_all_states_add_up_to_one_in_each_window(
    signals: Signals, understood: Literal[True, False], where: Where
) -> None:
    """Whatever was measured or not, no time is lost and none is counted twice."""
    states = classify(signals, context(where), understood=understood)

    rates = np.array([states.rate(code) for code in CODE.values()])
    assert rates.sum(axis=0) == near(np.ones(len(signals.windows.t0)))
    assert ((rates >= 0) & (rates <= 1)).all()


@given(any_signals())
def test_seconds_of_all_states_add_up_to_the_recorded_time(signals: Signals) -> None:
    """Over any interval that holds all windows, and piecewise over any cut of it."""
    states = classify(signals, context())
    end = int(signals.windows.t1[-1]) if len(signals.windows.t1) else 1
    cuts = np.array([0, end // 3, end // 2, end], np.int64)

    whole = sum(float(states.seconds(code, cuts[:1], cuts[-1:])[0]) for code in CODE.values())
    pieces = sum(float(seconds.sum()) for _, seconds in states.seconds_between(cuts))

    assert whole == near(signals.windows.recorded_ns / 1e9)
    assert pieces == near(whole)


@given(any_signals())
def test_busy_is_the_integral_of_utilization(signals: Signals) -> None:
    """Recorded minus idle equals utilization times time, where utilization was measured."""
    known = ~np.isnan(signals.windows.value)
    windows = Series(signals.windows.t0[known], signals.windows.t1[known], signals.windows.value[known])
    states = classify(signals, context())
    width = (signals.windows.t1 - signals.windows.t0) / 1e9

    busy = float(((1 - states.rate(CODE["idle"])) * width)[known].sum())

    assert busy == near(float((windows.value / 100 * (windows.t1 - windows.t0) / 1e9).sum()))


def test_every_state_has_a_code() -> None:
    """Arrays store the position in ``STATES``."""
    assert [name for name, _ in sorted(CODE.items(), key=lambda item: item[1])] == list(STATES)
