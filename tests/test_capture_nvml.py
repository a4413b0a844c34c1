"""NVIDIA GPUs, read through a stand-in for NVML with the habits of an H200: what is read, what is lost, what is never asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.capture.devices import (
    Clock,
    CounterReading,
    GpuInfo,
    GpuReading,
    NoDevices,
    ProcessReading,
    UtilSample,
)
from dipstick.capture.devices.choose import open_devices
from dipstick.capture.devices.gpm import METRICS
from dipstick.capture.devices.nvml import NvmlDevices, pair, reason_words
from dipstick.capture.devices.stamps import Stamps
from fake_nvml import GPU_IS_LOST, NOT_SUPPORTED, UNIX_NS, FakeClock, FakeNvml, NVMLError, S, User

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000
START = FakeClock().now


def machine(**options: Any) -> tuple[NvmlDevices, FakeNvml, FakeClock]:
    """A machine at the start of a recording, its driver, and its clock."""
    clock = FakeClock()
    nvml = FakeNvml(clock, **options)
    return NvmlDevices(nvml, Clock(clock.mono, clock.unix)), nvml, clock


def busy_by_second(_gpu: int, mono: int) -> int:
    """1 % in the first second of a recording, 2 % in the next, and so on."""
    return (mono - START) // S + 1


# what is there


def test_gpus_are_named_with_their_window_and_history() -> None:
    """The driver keeps a sample each 200 ms over 14 s: that is the counter's window, and how far one can look back."""
    devices, _, _ = machine(gpus=2)
    assert devices.gpus == tuple(
        GpuInfo(gpu, "NVIDIA H200", f"GPU-{gpu}", 150_754_820_096, 200 * MS, 14 * S) for gpu in (0, 1)
    )


def test_a_driver_without_samples_leaves_the_window_open() -> None:
    """It is not guessed here (``window.WindowProbe`` may learn it from the polls)."""
    devices, _, _ = machine(refuse={"nvmlDeviceGetSamples": NOT_SUPPORTED})
    assert (devices.gpus[0].util_window_ns, devices.gpus[0].history_ns) == (None, None)


def test_a_gpu_without_handle_is_left_out() -> None:
    """One that fell off the bus does not hide the others."""
    devices, _, _ = machine(gpus=2, refuse={"nvmlDeviceGetHandleByIndex": GPU_IS_LOST})
    assert devices.gpus == ()
    assert devices.health.failed == {"nvmlDeviceGetHandleByIndex": 2}


# the poll


def test_a_poll_reads_every_column_once_and_stamps_it() -> None:
    """Percent, bytes, watts, MHz, degrees, and the reasons for a lower clock in words."""
    devices, nvml, clock = machine(gpus=2, load=lambda _gpu, _time: 40)
    nvml.reasons = 0x24
    clock.pass_time(1)
    before = nvml.calls.copy()
    assert devices.read(1) == GpuReading(START + S, 40, 20, 2**30, 160.0, 1980, 40, "sw_power_cap+sw_thermal")
    assert set((nvml.calls - before).values()) == {1}


def test_what_a_gpu_does_not_support_is_null_said_once_and_not_asked_again() -> None:
    """A thousand refusals a minute would cost more than the answers."""
    devices, nvml, _ = machine(gpus=2, refuse={"nvmlDeviceGetPowerUsage": NOT_SUPPORTED})
    assert [devices.read(0).power_w for _ in range(3)] == [None, None, None]
    assert nvml.calls["nvmlDeviceGetPowerUsage"] == 1
    assert devices.health.refused[0, "nvmlDeviceGetPowerUsage"] == "Not Supported"
    assert devices.health.failed == {}
    assert devices.read(1).power_w is None
    assert nvml.calls["nvmlDeviceGetPowerUsage"] == 2, "another GPU may support it"


def test_a_failure_that_may_pass_is_counted_and_tried_again() -> None:
    """The other columns are read; afterwards the value is back."""
    devices, nvml, _ = machine()
    nvml.refuse["nvmlDeviceGetUtilizationRates"] = GPU_IS_LOST
    reading = devices.read(0)
    assert (reading.util_pct, reading.mem_util_pct, reading.sm_mhz) == (None, None, 1980)
    assert devices.health.failed == {"nvmlDeviceGetUtilizationRates": 1}
    del nvml.refuse["nvmlDeviceGetUtilizationRates"]
    assert devices.read(0).util_pct == 50


def test_a_function_that_the_binding_lacks_is_a_refusal() -> None:
    """An old nvidia-ml-py has no temperature, say."""
    devices, _, _ = machine(absent=("nvmlDeviceGetTemperature",))
    assert devices.read(0).temp_c is None
    assert devices.health.refused == {
        (0, "nvmlDeviceGetTemperature"): "the installed binding has no such function"
    }


def test_older_bindings_name_the_reasons_otherwise() -> None:
    """``...ThrottleReasons`` became ``...EventReasons``."""
    devices, nvml, _ = machine(absent=("nvmlDeviceGetCurrentClocksEventReasons",))
    nvml.reasons = 0x4
    assert devices.read(0).throttle == "sw_power_cap"


@pytest.mark.parametrize(
    ("bits", "words"), [(0, ""), (1, "idle"), (0x48, "hw_slowdown+hw_thermal"), (0x1001, "idle+0x1000")]
)
def test_reasons_in_words(bits: int, words: str) -> None:
    """None is the empty string (missing would be null); a bit that is not known yet stays visible."""
    assert reason_words(bits) == words


def test_pcie_throughput_is_never_asked() -> None:
    """It takes 41 ms; the stand-in raises if anybody does."""
    devices, nvml, clock = machine(users={0: [User(7)]})
    for _ in range(20):
        clock.pass_time(0.5)
        devices.read(0), devices.history(0), devices.counters(0), devices.processes(0)
    devices.close()
    with pytest.raises(AssertionError):
        nvml.nvmlDeviceGetPcieThroughput(0)


# the driver's own samples


def test_no_window_of_a_minute_is_lost_or_repeated() -> None:
    """Fetched every 4 s: 300 windows of 200 ms, each once, with the load of its own time."""
    devices, _, clock = machine(load=busy_by_second)
    found: list[UtilSample] = []
    for _ in range(15):
        clock.pass_time(4)
        found += devices.history(0)
    assert [sample.t_ns for sample in found] == [START + k * 200 * MS for k in range(1, 301)]
    assert [sample.util_pct for sample in found] == [(k - 1) // 5 + 1 for k in range(1, 301)]
    assert [sample.mem_util_pct for sample in found] == [((k - 1) // 5 + 1) // 2 for k in range(1, 301)]


def test_samples_from_before_the_recording_are_left_out() -> None:
    """The driver remembers 14 s; the recording begins now."""
    devices, _, clock = machine()
    assert devices.history(0) == []
    clock.pass_time(0.2)
    assert [sample.t_ns for sample in devices.history(0)] == [START + 200 * MS]


@pytest.mark.parametrize("by_s", [3600, -3600, 30, -30])
def test_samples_survive_a_step_of_the_wall_clock(by_s: int) -> None:
    """The driver stamps in Unix time. It is set 10.1 s into the run: every window is still there, once, in its place."""
    devices, _, clock = machine(gpus=2, load=busy_by_second)
    clock.steps.append((START + 10_100 * MS, by_s * S))
    found: dict[int, list[UtilSample]] = {0: [], 1: []}
    for _ in range(10):
        clock.pass_time(4)
        for gpu, samples in found.items():
            samples.extend(devices.history(gpu))
    for samples in found.values():
        assert [sample.t_ns for sample in samples] == [START + k * 200 * MS for k in range(1, 201)]
        assert samples[-1].util_pct == 40


def test_stamps_that_count_from_the_hosts_start() -> None:
    """Some boards do that (DGX Spark): then they are monotonic as they are."""
    clock = FakeClock()
    stamps = Stamps(Clock(clock.mono, clock.unix))
    clock.pass_time(5)
    stamps.refresh()
    assert stamps.mono((START + 3 * S) // 1000, START) == START + 3 * S
    assert stamps.mono(17, START) is None
    assert stamps.mono((clock.unix() + 60 * S) // 1000, START) is None, "a minute in the future"


def test_one_sample_that_is_seen_twice_is_one() -> None:
    """Slewing moves the clocks against each other by a millisecond between two fetches."""
    clock = FakeClock()
    stamps = Stamps(Clock(clock.mono, clock.unix))
    stamp = clock.unix() // 1000
    first = stamps.mono(stamp, START - S)
    clock.offset -= MS
    stamps.refresh()
    assert stamps.steps == 0
    assert first is not None
    assert stamps.mono(stamp, first) is None


def test_the_two_histories_are_joined_by_time() -> None:
    """They are stamped microseconds apart; a sample without a partner stays alone, never with somebody else's value."""
    busy, memory = [(200 * MS, 99.0), (400 * MS, 98.0)], [(200 * MS + 4000, 20.0), (600 * MS, 30.0)]
    assert pair(busy, memory) == [
        UtilSample(200 * MS, 99.0, 20.0),
        UtilSample(400 * MS, 98.0, None),
        UtilSample(600 * MS, None, 30.0),
    ]


@pytest.mark.parametrize("kind", [0, 1, 3, 99])
def test_values_of_any_type(kind: int) -> None:
    """NVML says whether the union holds a double, an unsigned or a long; what it does not name is an unsigned."""
    devices, nvml, clock = machine(load=lambda _gpu, _time: 7)
    nvml.value_type = kind
    clock.pass_time(0.2)
    assert [sample.util_pct for sample in devices.history(0)] == [7.0]


def test_a_history_that_runs_dry_is_no_failure() -> None:
    """NVML says "Not Found" then."""
    devices, _, clock = machine()
    clock.pass_time(0.2)
    devices.history(0)
    assert devices.history(0) == []
    assert devices.health.failed == {}


# counters


def test_counters_are_means_between_two_samples_over_their_true_window() -> None:
    """The first call only takes a sample; each value comes from its own metric."""
    devices, nvml, clock = machine(load=lambda _gpu, _time: 0)
    assert devices.counters(0) == []
    clock.pass_time(0.2)
    assert devices.counters(0) == [
        CounterReading(START + 200 * MS, 200 * MS, 1, 2, 3, 5, 10, 20, 21, None, None)
    ]
    clock.pass_time(0.35)
    assert devices.counters(0)[0][:2] == (START + 550 * MS, 350 * MS)
    assert nvml.calls["nvmlGpmSampleAlloc"] == 2, "two samples take turns"


def test_columns_of_the_reading_are_the_metrics_asked_for() -> None:
    """In one order, so that no value can slip into its neighbour's column."""
    assert tuple(METRICS) == CounterReading._fields[2:]


def test_samples_too_close_or_too_far_apart_give_nothing() -> None:
    """NVML wants 100 ms; a mean over a pause of minutes says nothing about phases."""
    devices, _, clock = machine()
    devices.counters(0)
    clock.pass_time(0.05)
    assert devices.counters(0) == []
    clock.pass_time(60)
    assert devices.counters(0) == []
    clock.pass_time(0.2)
    assert devices.counters(0)[0].window_ns == 200 * MS


def test_a_counter_that_is_not_a_number_is_missing() -> None:
    """GPM's first DRAM value is a NaN on an H200."""
    devices, _, clock = machine(load=lambda _gpu, _time: float("nan"))
    devices.counters(0)
    clock.pass_time(0.2)
    assert set(devices.counters(0)[0][2:]) == {None}


@pytest.mark.parametrize(
    "options",
    [
        {"gpm": False},
        {"refuse": {"nvmlGpmQueryDeviceSupport": NOT_SUPPORTED}},
        {"absent": ("nvmlGpmQueryDeviceSupport",)},
        {"refuse": {"nvmlGpmSampleAlloc": NOT_SUPPORTED}},
        {"refuse": {"nvmlGpmSampleGet": NOT_SUPPORTED}},
    ],
)
def test_without_gpm_there_are_no_counters(options: dict[str, Any]) -> None:
    """An A100, an old driver, a binding without it, MIG: no rows, and nothing breaks."""
    devices, _, clock = machine(**options)
    for _ in range(3):
        clock.pass_time(0.2)
        assert devices.counters(0) == []
    devices.close()


def test_a_failing_query_costs_one_reading() -> None:
    """The next pair is good again."""
    devices, nvml, clock = machine()
    devices.counters(0)
    nvml.refuse["nvmlGpmMetricsGet"] = GPU_IS_LOST
    clock.pass_time(0.2)
    assert devices.counters(0) == []
    del nvml.refuse["nvmlGpmMetricsGet"]
    clock.pass_time(0.2)
    assert devices.counters(0)[0].window_ns == 200 * MS


def test_closing_frees_both_samples_and_nvml() -> None:
    """Of each GPU that has them."""
    devices, nvml, _ = machine(gpus=2)
    devices.close()
    assert (nvml.calls["nvmlGpmSampleFree"], nvml.calls["nvmlShutdown"]) == (4, 1)


# processes


def test_use_and_memory_by_process() -> None:
    """Use is stamped by the driver and stands for the time since the last entry; memory is what it holds now."""
    devices, _, clock = machine(users={0: [User(936, sm=40, memory_b=5 * 2**30)]})
    clock.pass_time(1.3)
    assert devices.processes(0) == [
        ProcessReading(START + S, None, 936, 40.0, 20.0),
        ProcessReading(START + 1300 * MS, None, 936, mem_used_b=5 * 2**30),
    ]
    clock.pass_time(1)
    assert devices.processes(0)[0] == ProcessReading(START + 2 * S, S, 936, 40.0, 20.0)


def test_after_a_pause_the_window_of_a_process_is_not_known() -> None:
    """The driver lists only who used something: 5 s of silence are not one 5 s window."""
    devices, _, clock = machine(users={0: [User(936)]})
    clock.pass_time(1)
    devices.processes(0)
    clock.pass_time(5)
    assert devices.processes(0)[0].window_ns is None


def test_entries_that_the_driver_repeats_are_taken_once() -> None:
    """A process that ended stays in its list; and entries from before the recording are not of it."""
    gone, old = User(1, until=START + 2 * S), User(2, until=START - 5 * S)
    devices, _, clock = machine(users={0: [gone, old]})
    seen = []
    for _ in range(6):
        clock.pass_time(1)
        seen += [(r.pid, (r.t_ns - START) // S) for r in devices.processes(0) if r.sm_pct is not None]
    assert seen == [(1, 1), (1, 2)]


def test_memory_that_the_driver_will_not_tell_is_missing() -> None:
    """NVML gives None, or all ones."""
    devices, _, clock = machine(users={0: [User(1, memory_b=None), User(2, memory_b=2**64 - 1)]})
    clock.pass_time(1)
    assert [r.mem_used_b for r in devices.processes(0)[2:]] == [None, None]


def test_a_share_beyond_what_a_percentage_can_be_is_missing() -> None:
    """NVML's "not a value" is the largest unsigned."""
    devices, _, clock = machine(users={0: [User(1, sm=2**32 - 1)]})
    clock.pass_time(1)
    assert devices.processes(0)[0].sm_pct is None


def test_nobody_using_a_gpu_is_no_failure() -> None:
    """``Not Found`` of the list means that it is empty."""
    devices, _, clock = machine()
    clock.pass_time(1)
    assert devices.processes(0) == []
    assert devices.health.failed == {}


# which devices a host has


def loader(**modules: Any) -> Callable[[str], Any]:
    """An ``import_module`` that knows these modules only."""

    def load(name: str) -> Any:
        if name not in modules:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return modules[name]

    return load


def test_nvidia_comes_first() -> None:
    """And nothing else is tried."""
    clock = FakeClock()
    found = open_devices(Clock(clock.mono, clock.unix), loader(pynvml=FakeNvml(clock)))
    assert (found.name, len(found.gpus)) == ("NVML", 1)


def test_a_host_without_any_gpu_says_what_was_tried() -> None:
    """A driver without GPUs is closed again; the reasons end up in the box at the end of a run."""
    clock = FakeClock()
    nvml = FakeNvml(clock, gpus=0)
    found = open_devices(Clock(clock.mono, clock.unix), loader(pynvml=nvml))
    assert isinstance(found, NoDevices)
    assert found.why == "pynvml: no GPU; amdsmi: No module named 'amdsmi'"
    assert nvml.calls["nvmlShutdown"] == 1


def test_a_driver_that_does_not_start_is_a_reason_not_an_error() -> None:
    """Whatever the binding raises; amdsmi without its library raises a KeyError."""

    def init() -> None:
        raise KeyError("ROCM_HOME")

    nvml = FakeNvml(FakeClock(), refuse={"nvmlInit": 9})
    found = open_devices(Clock(), loader(pynvml=nvml, amdsmi=SimpleNamespace(amdsmi_init=init)))
    assert isinstance(found, NoDevices)
    assert found.why == "pynvml: error 9; amdsmi: 'ROCM_HOME'"


def test_no_devices_answer_like_devices() -> None:
    """A null object: the sampler needs no special case."""
    none = NoDevices("no driver")
    assert (none.gpus, none.history(0), none.counters(0), none.processes(0)) == ((), [], [], [])
    none.close()
    with pytest.raises(IndexError):
        none.read(0)


def test_an_anchor_is_read_in_the_middle() -> None:
    """Monotonic before and after: 10 and 30 make 20."""
    ticks = iter([10, 30])
    assert Clock(lambda: next(ticks), lambda: UNIX_NS).anchor() == (20, UNIX_NS)


def test_errors_look_like_the_bindings_own() -> None:
    """The stand-in's exceptions carry the code where pynvml has it."""
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    assert pynvml.NVMLError(NOT_SUPPORTED).value == NVMLError(NOT_SUPPORTED).value
    names = {
        "nvmlDeviceGetSamples",
        "nvmlGpmMetricsGet",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetClockInfo",
    }
    assert all(hasattr(pynvml, name) for name in names | FakeNvml(FakeClock())._functions().keys())
