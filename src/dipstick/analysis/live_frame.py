"""What a live view shows at one instant. ``None`` is "not known", never zero; times are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dipstick.model import Tracks
    from dipstick.recording.window import Mode


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One GPU.

    Attributes:
        host: Its host.
        gpu: Its index.
        rank: Whose it is.
        util_pct: The last utilization sample; None if there is none, or the last one is stale.
        state: State of the last window (``model.STATES``).
        busy_pct: Mean utilization over ``RECENT_S``.
        hollow_pct: Share of that time that reads as busy without SM work.
        mem_used_b: Memory in use.
        mem_total_b: Memory in all.
        power_w: Board power.
        stale_s: How old the last sample is, where it is too old to speak for now.
    """

    host: str
    gpu: int
    rank: int | None
    util_pct: float | None
    state: str | None
    busy_pct: float | None
    hollow_pct: float | None
    mem_used_b: int | None
    mem_total_b: int | None
    power_w: float | None
    stale_s: float | None


@dataclass(frozen=True, slots=True)
class ProcessNow:
    """One process where no GPU is recorded: CPU time stands in, and is no utilization of a GPU."""

    host: str
    pid: int
    role: str | None
    rank: int | None
    cpu_pct: float
    rss_b: int | None


@dataclass(frozen=True, slots=True)
class RankNow:
    """One rank.

    Attributes:
        rank: Its number.
        phase: The phase it is in; None between phases, and where no open span was seen.
        phase_s: Since when, as far back as spans are known.
        inside: The innermost span that is open.
        step: Number of the step it is in, or was in last.
        step_s: Since when it is in that step; None if no step is under way.
        jobs_sent: Reward jobs of that step so far; None: none seen.
        jobs_done: Those that ended.
        last: The phase before, where ``phase`` is None.
    """

    rank: int
    phase: str | None
    phase_s: float | None
    inside: str | None
    step: int | None
    step_s: float | None
    jobs_sent: int | None
    jobs_done: int | None
    last: str | None


@dataclass(frozen=True, slots=True)
class Awaited:
    """Ranks that wait now, and for whom.

    Attributes:
        barrier: Where (``reward``, ``lengths``), or the name of the call that gathers.
        waiting: Ranks that have arrived, and seconds since.
        late: Ranks that have not.
        step: The step.
        phase: What the late ranks are in, where all are in the same.
    """

    barrier: str
    waiting: tuple[tuple[int, float], ...]
    late: tuple[int, ...]
    step: int | None
    phase: str | None


@dataclass(frozen=True, slots=True)
class LastStep:
    """The last step that every rank has ended.

    Attributes:
        number: The framework's.
        seconds: From its first start to its last end.
        median_s: Of the steps that are known, if there are three.
        phases: Mean seconds of a rank by phase, longest first.
        by_rank: Seconds by phase of each rank.
        hollow_gpu_s: GPU-seconds that read as busy without SM work; None where telemetry does not reach back.
        busy_gpu_s: GPU-seconds that read as busy.
    """

    number: int
    seconds: float
    median_s: float | None
    phases: tuple[tuple[str, float], ...]
    by_rank: tuple[tuple[int, tuple[tuple[str, float], ...]], ...]
    hollow_gpu_s: float | None
    busy_gpu_s: float | None


@dataclass(frozen=True, slots=True)
class Beat:
    """How well telemetry comes: worked out from the time stamps of one host's polls.

    Attributes:
        hz: Polls a second.
        late_mean_ms, late_max_ms: After the best grid through them.
        missed: Polls that are not there.
        window_s: Over how long.
    """

    host: str
    hz: float
    late_mean_ms: float
    late_max_ms: float
    missed: int
    window_s: float


@dataclass(frozen=True, slots=True)
class Recorder:
    """What recording costs, and how late it is.

    Attributes:
        beats: By host.
        sampler_cpu_pct: Of one core, the busiest sampler, its start left out.
        probe_pct: Of the time of the rank whose probe costs most.
        dropped: Rows lost.
        capped: Processes whose probe stopped writing.
        quiet_s: How long ago the last telemetry was taken; None: none was.
    """

    beats: tuple[Beat, ...]
    sampler_cpu_pct: float | None
    probe_pct: float | None
    dropped: int
    capped: int
    quiet_s: float | None


@dataclass(frozen=True, slots=True)
class Frame:
    """The run at one instant.

    Attributes:
        name: Of the recording.
        mode: ``recording``, ``ended`` or ``replay``.
        t_s: The instant, since the recording's start.
        last_s: The latest instant that can be shown.
        step: The highest step that a rank is in.
        gpus, processes, ranks: Who does what; ``processes`` only where no GPU is recorded.
        waits: Who waits for whom, longest first.
        last_step: The breakdown of the last step.
        recorder: Overhead and lateness.
        tracks: The last minutes for drawing (stays out of the JSON).
    """

    name: str
    mode: Mode
    t_s: float
    last_s: float
    step: int | None
    gpus: tuple[GpuNow, ...]
    processes: tuple[ProcessNow, ...]
    ranks: tuple[RankNow, ...]
    waits: tuple[Awaited, ...]
    last_step: LastStep | None
    recorder: Recorder
    tracks: Tracks
