"""The nouns: frozen dataclasses that analyses return and renderers read.

Times are seconds since the recording's start (t = 0) as floats, utilization is percent 0-100, and
GPU-seconds are seconds times GPUs. ``None`` means "not measured"; it is never written as 0.
Arrays (in :class:`Tracks`) are numpy and stay out of the JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dipstick.judgement import Check, Claim, Word

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]
    FloatArray = npt.NDArray[np.float64]
    CodeArray = npt.NDArray[np.uint8]

Verdict = Word
DipsAre = Literal[
    "step_cycle", "queued_work", "straggler_job", "straggler_rank", "imbalance",
    "transfer", "checkpoint", "mixed", "unknown", "none",
]  # fmt: skip
Series = Literal["utilization", "work"]
Scope = Literal["job", "gpu", "some"]

STATES: tuple[str, ...] = (
    "idle", "compute", "light", "spinning", "copying_bus", "copying_device", "waiting_or_bus_copy", "unknown",
)  # fmt: skip
"""State names; the position is the code in arrays."""

HOLLOW_STATES: tuple[str, ...] = ("spinning", "copying_bus", "waiting_or_bus_copy")
"""Read as busy by ``utilization.gpu`` without SM work."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How finely the utilization was seen.

    Attributes:
        period_s: Median distance of two samples of one GPU.
        counter_window_s: The counter's own averaging window.
        smallest_visible_dip_s: A full-depth dip shorter than this can stay unseen.
        coverage: Share of the analysis window that samples cover, worst GPU (0-1).
        gaps: Holes in the time axis, all GPUs.
        gap_s: Seconds in those holes, all GPUs.
        source: Which signal gave utilization (``buffer``, ``poll`` ...).
        has_counters: Whether SM/DRAM/PCIe counters (GPM, DCGM) are there.
    """

    period_s: float | None
    counter_window_s: float | None
    smallest_visible_dip_s: float | None
    coverage: float | None
    gaps: int
    gap_s: float
    source: str | None
    has_counters: bool


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """What the probes cost by their own accounts; the rank is the one that paid the largest share.

    Attributes:
        processes: How many gave an account.
        cpu_s: CPU seconds of all of them: spans (rows times the cost of one), hooks and writer threads.
        rank: None where no process of a rank gave an account: then the one that wrote most.
        steps: Numbered steps that it recorded.
        events_per_step: Rows that it wrote a step; None without steps.
        self_ms_per_step: Its probe's own time a step; None without steps.
        step_s: Mean length of a step; None without steps.
        share_pct: Self time as a share of the steps, or of the whole run where there are none.
    """

    processes: int
    cpu_s: float
    rank: int | None
    steps: int
    events_per_step: float | None
    self_ms_per_step: float | None
    step_s: float | None
    share_pct: float | None


@dataclass(frozen=True, slots=True)
class SamplerCost:
    """What the sampler cost on the host where it cost most.

    Attributes:
        core_pct: Share of one core while it sampled.
        start_cpu_s: CPU seconds that starting it took, beside the command's own start.
    """

    core_pct: float
    start_cpu_s: float


@dataclass(frozen=True, slots=True)
class Overhead:
    """What recording cost the run.

    Attributes:
        probe: None where no probe said.
        sampler: None where no sampler said.
        because: Why the missing ones are not known; empty where both are.
    """

    probe: ProbeCost | None = None
    sampler: SamplerCost | None = None
    because: str = "nothing was recorded about it"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What was recorded."""

    name: str
    start_unix_ns: int
    seconds: float
    window_s: tuple[float, float]
    gpus: int
    ranks: int
    steps: int
    hosts: int
    origin: Literal["measured", "imported"]
    sampling: Sampling
    overhead: Overhead | None = None
    gpu_names: tuple[str, ...] = ()
    unused_gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The two sentences, and the keys that scripts read."""

    headline: str
    longest_phase: str | None
    paid_most_for: str | None
    dips_are: DipsAre


@dataclass(frozen=True, slots=True)
class GpuStates:
    """GPU-seconds of one GPU by state; they add up to ``recorded_s``."""

    host: str
    gpu: int
    seconds: dict[str, float]
    recorded_s: float
    util_mean_pct: float | None
    used: bool
    idle_power_w: float | None = None
    method: Literal["counters", "trace", "power", "utilization"] = "utilization"

    @property
    def busy_s(self) -> float:
        """Seconds that read as busy: recorded minus idle (unknown counts as busy where utilization said so)."""
        return self.recorded_s - self.seconds["idle"]

    @property
    def hollow_s(self) -> float:
        """Seconds that read as busy without SM work."""
        return sum(self.seconds[s] for s in HOLLOW_STATES)


@dataclass(frozen=True, slots=True)
class Dip:
    """One dip of utilization (or of work: utilization minus hollow seconds).

    Attributes:
        gpu: GPU index, or None for the mean over the job's GPUs.
        depth_pct: Local baseline minus the lowest window mean, percentage points.
        baseline_pct: The local baseline.
        deficit_gpu_s: GPU-seconds below the baseline.
        phase: The phase of the GPU's rank in which most of the dip's utilization is missing.
        boundary: The phase whose start the dip's start is compared with (the one that fills the dip).
        boundary_lag_s: Dip start minus the nearest start of that phase (positive: the dip starts after it).
        scope: ``job`` if every used GPU dips with it, ``gpu`` if none other does, else ``some``.
    """

    host: str
    gpu: int | None
    start_s: float
    end_s: float
    depth_pct: float
    baseline_pct: float
    deficit_gpu_s: float
    phase: str | None
    boundary: str | None
    boundary_lag_s: float | None
    series: Series
    scope: Scope


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """Seconds of one rank in one phase, exclusive (innermost span wins).

    ``rank`` is None in rows that hold all ranks (then ``seconds`` are summed over ranks).
    """

    rank: int | None
    phase: str
    seconds: float
    share: float
    count: int
    median_s: float | None
    p90_s: float | None
    util_mean_pct: float | None
    states: dict[str, float] | None
    hollow_s: float | None
    parts: tuple[PhasePart, ...] = ()


@dataclass(frozen=True, slots=True)
class PhasePart:
    """A named share of a phase (``reward``: parse, score; ``collective_wait``: by barrier and cause)."""

    name: str
    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class WaitRow:
    """Waiting of one rank at one kind of barrier, and what the late rank was doing meanwhile."""

    rank: int
    barrier: str
    because: str
    late_rank: int | None
    phase: str
    seconds: float
    count: int
    longest_s: float


@dataclass(frozen=True, slots=True)
class StepArrival:
    """One step's reward barrier: who came last, by how much, and the job that ended last on that rank."""

    step: int
    last_rank: int
    margin_s: float
    waits_s: dict[int, float]
    last_job: str | None
    last_job_pid: int | None
    last_job_s: float | None


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank's record at the reward barrier."""

    rank: int
    last_in_steps: int
    waited_s: float
    blame_s: float


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One reward worker process."""

    pid: int
    rank: int
    jobs: int
    busy_s: float
    last_in_steps: int


@dataclass(frozen=True, slots=True)
class Stragglers:
    """First form: counts and seconds. Tests and what-ifs are added by the verdicts."""

    steps: int
    wait_gpu_s: float | None
    slots_busy: float | None
    slots: int | None
    by_rank: tuple[RankRow, ...]
    by_worker: tuple[WorkerRow, ...]
    arrivals: tuple[StepArrival, ...]
    jobs: int
    job_median_s: float | None
    job_p99_s: float | None
    job_max_s: float | None


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the seconds of the analysis window went.

    For each rank the exclusive seconds add up to the window, to the nanosecond (asserted when built).
    """

    rows: tuple[PhaseRow, ...]
    totals: tuple[PhaseRow, ...]
    waits: tuple[WaitRow, ...]
    longest: str | None
    paid_most_for: str | None
    critical_path: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Tenant:
    """One process on one GPU."""

    host: str
    gpu: int
    pid: int
    role: str
    util_mean_pct: float | None
    mem_used_b: int | None


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal that is not there, what it would have settled, and how to get it."""

    signal: str
    needed_for: str
    how_to_get_it: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader of the recording should know (data quality, clock steps, dropped rows)."""

    level: Literal["info", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class GpuTrack:
    """Utilization and state of one GPU for drawing: window i is [t0_s[i], t1_s[i])."""

    host: str
    gpu: int
    rank: int | None
    t0_s: FloatArray
    t1_s: FloatArray
    util_pct: FloatArray
    state: CodeArray


@dataclass(frozen=True, slots=True)
class RankTrack:
    """Exclusive phases of one rank for drawing: segment i is [edge_s[i], edge_s[i+1]), phase code[i]."""

    rank: int
    gpus: tuple[tuple[str, int], ...]
    edge_s: FloatArray
    code: CodeArray


@dataclass(frozen=True, slots=True)
class Tracks:
    """Everything a renderer needs to draw lanes."""

    gpus: tuple[GpuTrack, ...]
    ranks: tuple[RankTrack, ...]
    step_start_s: FloatArray


@dataclass(frozen=True, slots=True)
class Report:
    """The finding: one object for the terminal, HTML, Markdown and JSON.

    ``checks`` and ``claims`` are empty where nothing was judged; the JSON has ``null`` there.
    """

    run: RunInfo
    answer: Answer
    states: tuple[GpuStates, ...]
    states_all: tuple[GpuStates, ...]
    dips: tuple[Dip, ...]
    job_dips: tuple[Dip, ...]
    phases: Breakdown | None
    stragglers: Stragglers | None
    tenants: tuple[Tenant, ...]
    missing: tuple[Missing, ...]
    notes: tuple[Note, ...]
    tracks: Tracks
    checks: tuple[Check, ...] = ()
    claims: tuple[Claim, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
