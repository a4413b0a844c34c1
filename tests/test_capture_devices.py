"""Devices other than NVIDIA's: AMD's through hand-written answers of amdsmi, and recordings that are played again."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from dipstick.capture.devices import Clock, CounterReading, GpuInfo, GpuReading, ProcessReading, UtilSample
from dipstick.capture.devices.amd import AmdDevices
from dipstick.capture.devices.replay import ReplayDevices
from dipstick.capture.window import WindowProbe
from dipstick.recording.reader import open_recording
from fake_nvml import FakeClock, S
from records import HOST, counters, memory, ns, utilization

if TYPE_CHECKING:
    from dipstick.recording.reader import Recording

MS = 1_000_000


class AmdError(Exception):
    """As amdsmi raises it."""

    def __init__(self, code: int) -> None:
        self.err_code = code
        super().__init__(f"Error code: {code}")


class FakeAmd:
    """An MI300X as amdsmi 7 describes it; ``refuse`` gives an error code by function."""

    AmdSmiMemoryType = SimpleNamespace(VRAM="vram")
    AmdSmiClkType = SimpleNamespace(GFX="gfx")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def __init__(self, **answers: Any) -> None:
        self.refuse: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.answers: dict[str, Any] = {
            "amdsmi_init": None,
            "amdsmi_shut_down": None,
            "amdsmi_get_processor_handles": ["card0"],
            "amdsmi_get_gpu_asic_info": {"market_name": "MI300X", "vendor_name": "N/A"},
            "amdsmi_get_gpu_device_uuid": "6aff74a1",
            "amdsmi_get_gpu_memory_total": 206_141_652_992,
            "amdsmi_get_gpu_memory_usage": 17_179_869_184,
            "amdsmi_get_gpu_activity": {"gfx_activity": 87, "umc_activity": 12, "mm_activity": "N/A"},
            "amdsmi_get_power_info": {
                "socket_power": "N/A",
                "current_socket_power": 612,
                "average_socket_power": "N/A",
            },
            "amdsmi_get_clock_info": {"clk": 2100, "min_clk": 132, "max_clk": 2100},
            "amdsmi_get_temp_metric": 56,
            "amdsmi_get_gpu_process_list": [
                {"name": "python", "pid": 77, "mem": 4, "memory_usage": {"vram_mem": 8_000_000_000}},
                {"name": "other", "pid": 78, "mem": 4, "memory_usage": {"vram_mem": "N/A"}},
                {"name": "broken"},
            ],
        } | answers

    def __getattr__(self, name: str) -> Any:
        answers = self.__dict__.get("answers", {})
        if name not in answers:
            raise AttributeError(name)

        def call(*_arguments: Any) -> Any:
            self.calls[name] += 1
            if name in self.refuse:
                raise AmdError(self.refuse[name])
            return answers[name]

        return call


def amd(smi: FakeAmd | None = None) -> AmdDevices:
    clock = FakeClock(now=5 * S)
    return AmdDevices(smi or FakeAmd(), Clock(clock.mono, clock.unix))


def test_amd_fills_the_same_columns() -> None:
    """Graphics activity is utilization, memory-controller activity is memory utilization; the rest by name."""
    devices = amd()
    assert devices.gpus == (GpuInfo(0, "AMD MI300X", "6aff74a1", 206_141_652_992),)
    assert devices.read(0) == GpuReading(5 * S, 87, 12, 17_179_869_184, 612, 2100, 56, None)


def test_the_name_says_amd_so_that_states_stay_unknown() -> None:
    """``analysis.pipeline`` looks for the word; a name that has it keeps its form."""
    named = FakeAmd(amdsmi_get_gpu_asic_info={"market_name": "AMD Instinct MI300X"})
    assert amd(named).gpus[0].name == "AMD Instinct MI300X"
    assert amd(FakeAmd(amdsmi_get_gpu_asic_info=None)).gpus[0].name == "AMD GPU"


def test_what_amdsmi_does_not_know_is_null() -> None:
    """It writes "N/A", and that is not zero."""
    smi = FakeAmd(
        amdsmi_get_gpu_activity={"gfx_activity": "N/A", "umc_activity": "N/A"},
        amdsmi_get_power_info={"average_socket_power": "N/A"},
        amdsmi_get_clock_info={"clk": "N/A"},
        amdsmi_get_temp_metric=56_000,
    )
    assert amd(smi).read(0)[1:] == (None, None, 17_179_869_184, None, None, None, None)


def test_older_releases_have_the_average_power_and_another_word_for_the_clock() -> None:
    """MI200 fills ``average_socket_power``; ROCm 5 wrote ``cur_clk``."""
    smi = FakeAmd(
        amdsmi_get_power_info={"average_socket_power": 300, "current_socket_power": "N/A"},
        amdsmi_get_clock_info={"cur_clk": 1700},
    )
    reading = amd(smi).read(0)
    assert (reading.power_w, reading.sm_mhz) == (300, 1700)


def test_memory_by_process_and_no_share_of_it() -> None:
    """Its engine usage counts nanoseconds since the process began, so it is no share of a window."""
    assert amd().processes(0) == [
        ProcessReading(5 * S, None, 77, None, None, 8_000_000_000),
        ProcessReading(5 * S, None, 78, None, None, None),
    ]


def test_amd_keeps_no_samples_and_has_no_counters() -> None:
    """Rows of those tables are simply not there."""
    assert (amd().history(0), amd().counters(0)) == ([], [])


def test_amd_calls_that_fail_cost_their_column() -> None:
    """Not supported: never asked again. Busy: counted, and asked again."""
    smi = FakeAmd()
    devices = amd(smi)
    smi.refuse = {"amdsmi_get_power_info": 2, "amdsmi_get_temp_metric": 30}
    readings = [devices.read(0), devices.read(0)]
    assert {(r.util_pct, r.power_w, r.temp_c) for r in readings} == {(87, None, None)}
    assert (smi.calls["amdsmi_get_power_info"], smi.calls["amdsmi_get_temp_metric"]) == (1, 2)
    assert devices.health.failed == {"amdsmi_get_temp_metric": 2}
    devices.close()
    assert smi.calls["amdsmi_shut_down"] == 1


# replay


def replayed(recording: Recording, start_s: float = 0.0) -> tuple[ReplayDevices, FakeClock]:
    clock = FakeClock()
    return ReplayDevices(recording, Clock(clock.mono, clock.unix), start_ns=ns(start_s)), clock


def story() -> Recording:
    """Ten seconds of one GPU: polls each second, driver samples each 200 ms, counters, one process."""
    polls = utilization(list(range(10)), period=1.0, source="poll", power_w=120.0, throttle="idle")
    samples = utilization([i / 2 for i in range(50)])
    process = {"host": HOST, "gpu": 0, "t_ns": ns(1.5), "window_ns": ns(1), "pid": 7, "sm_pct": 40.0}
    return memory(gpu=polls + samples, gpu_counters=counters([30.0] * 50), gpu_process=[process])


def test_a_replayed_poll_is_what_was_polled_last() -> None:
    """At 2.5 s the poll of 2 s holds; before the first poll nothing is known. The stamp is the replay's own."""
    devices, clock = replayed(story())
    assert devices.read(0) == GpuReading(clock.now)
    clock.pass_time(2.5)
    assert devices.read(0) == GpuReading(clock.now, 1.0, None, None, 120.0, None, None, "idle")


def test_replayed_samples_come_once_in_order() -> None:
    """Asked at 1.0 s and 1.5 s: five, then two."""
    devices, clock = replayed(story())
    first = clock.now
    clock.pass_time(1)
    assert devices.history(0) == [UtilSample(first + ns(0.2 * (i + 1)), i / 2, None) for i in range(5)]
    clock.pass_time(0.5)
    assert [sample.util_pct for sample in devices.history(0)] == [2.5, 3.0]
    assert devices.history(0) == []


def test_a_replay_can_start_in_the_middle() -> None:
    """At 8 s of the recording: the poll of 8 s holds, and samples begin after it."""
    devices, clock = replayed(story(), start_s=8.0)
    assert devices.read(0).util_pct == 7.0
    clock.pass_time(0.2)
    assert [sample.util_pct for sample in devices.history(0)] == [20.0]


def test_counters_and_processes_are_replayed_too() -> None:
    """With the windows they had."""
    devices, clock = replayed(story())
    first = clock.now
    clock.pass_time(1.5)
    readings = devices.counters(0)
    assert (len(readings), readings[0].window_ns, readings[0].sm_active_pct) == (7, 200 * MS, 30.0)
    assert isinstance(readings[0], CounterReading)
    assert devices.processes(0) == [ProcessReading(first + ns(1.5), ns(1), 7, 40.0, None, None)]
    devices.close()


def test_the_shipped_sample_plays() -> None:
    """Two H200: names, window, and the utilization that its own tables hold."""
    recording = open_recording("sample:h200x2-grpo")
    devices, clock = replayed(recording, start_s=100.0)
    assert [gpu.name for gpu in devices.gpus] == ["NVIDIA H200"] * 2
    assert devices.gpus[0].util_window_ns == 200 * MS
    clock.pass_time(10)
    played = [sample.util_pct for sample in devices.history(1)]
    rows = recording.table("gpu", start_ns=ns(100) + 1, end_ns=ns(110) + 1)
    own = rows.filter((pl.col("gpu") == 1) & (pl.col("source").cast(pl.String) == "buffer"))
    assert played == own["util_pct"].to_list()
    assert len(played) > 40


# the counter's window, learned on the way


def polled(values: list[int], period_ms: float = 100.0) -> list[GpuReading]:
    return [GpuReading(round(i * period_ms * MS), value, 0) for i, value in enumerate(values)]


def test_a_window_that_is_known_stays() -> None:
    """What the driver said at the start is not unlearned."""
    probe = WindowProbe(200 * MS, 100 * MS)
    probe.saw_samples([0, 500 * MS, 1000 * MS])
    assert probe.window_ns == 200 * MS


def test_the_window_is_the_spacing_of_the_drivers_samples() -> None:
    """Three samples are enough; two are not."""
    probe = WindowProbe(None, 100 * MS)
    probe.saw_samples([0, 167 * MS])
    assert probe.window_ns is None
    probe.saw_samples([0, 166_700_000, 333_400_000])
    assert probe.window_ns == 167 * MS


def test_without_samples_the_window_is_how_often_a_polled_value_can_change() -> None:
    """At 10 Hz the value changes at every second poll, now and then only at the fourth: 200 ms."""
    values = [v for i in range(30) for v in ([i, i] if i % 7 else [i, i, i, i])]
    probe = WindowProbe(None, 100 * MS)
    for reading in polled(values):
        probe.saw_poll(reading)
    assert probe.window_ns == 200 * MS


@pytest.mark.parametrize("values", [[50] * 100, list(range(100)), [i // 2 for i in range(38)]])
def test_a_window_that_cannot_be_told_is_not_guessed(values: list[int]) -> None:
    """A steady load, a counter faster than the polls, too few changes."""
    probe = WindowProbe(None, 100 * MS)
    for reading in polled(values):
        probe.saw_poll(reading)
    assert probe.window_ns is None


def test_polls_without_utilization_teach_nothing() -> None:
    """A GPU that fell off the bus does not change its value."""
    probe = WindowProbe(None, 100 * MS)
    for i in range(100):
        probe.saw_poll(GpuReading(i * 100 * MS, None, None))
    assert probe.window_ns is None
