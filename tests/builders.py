"""Hand-made reports for the renderers' tests: every number is round, so that a screen can be checked by hand.

``tiny_report`` is two GPUs, two ranks, two steps of 10 s: generate 4 s (rank 0) or 5 s (rank 1), reward 3 or 4 s,
rank 0 waits 2 s at the reward gather, backward 1 s. GPU 0 spins while rank 0 waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dipstick.judgement import Check, Claim, Reason, Receipt, Verdict
from dipstick.model import (
    STATES,
    Answer,
    Breakdown,
    Dip,
    GpuStates,
    GpuTrack,
    Missing,
    Note,
    PhasePart,
    PhaseRow,
    RankRow,
    RankTrack,
    Report,
    RunInfo,
    Sampling,
    StepArrival,
    Stragglers,
    Tenant,
    Tracks,
    WaitRow,
    WorkerRow,
)
from dipstick.phases import CODE

HOST = "node1"
HOSTILE = '\x1b[31mred\x1b[0m <script>alert(1)</script> | `x` \u202egnp\u202c \x07{{ 7*7 }} & "q" \ud800'
"""ANSI, HTML, Markdown, a right-to-left override, a bell, a template expression and half a surrogate pair."""


def sampling(**changes: Any) -> Sampling:
    """A 5 Hz counter, seen completely."""
    base = Sampling(
        period_s=0.2,
        counter_window_s=0.2,
        smallest_visible_dip_s=0.4,
        coverage=1.0,
        gaps=0,
        gap_s=0.0,
        source="buffer",
        has_counters=True,
    )
    return replace(base, **changes)


def run_info(**changes: Any) -> RunInfo:
    """Twenty seconds, two of everything."""
    base = RunInfo(
        name="tiny",
        start_unix_ns=1_796_053_319_000_000_000,
        seconds=22.0,
        window_s=(1.0, 21.0),
        gpus=2,
        ranks=2,
        steps=2,
        hosts=1,
        origin="imported",
        sampling=sampling(),
        gpu_names=("NVIDIA H200", "NVIDIA H200"),
    )
    return replace(base, **changes)


def states(gpu: int, recorded_s: float = 20.0, **seconds: float) -> GpuStates:
    """GPU-seconds by state; what is not named is idle."""
    filled = dict.fromkeys(STATES, 0.0) | seconds
    filled["idle"] = recorded_s - sum(seconds.values())
    util = 100 * (recorded_s - filled["idle"]) / recorded_s
    return GpuStates(HOST, gpu, filled, recorded_s, util, used=True, idle_power_w=120.0, method="counters")


def phase_row(rank: int | None, phase: str, seconds: float, window: float = 20.0, **changes: Any) -> PhaseRow:
    """One phase of one rank (or of all: rank None); twice in the run."""
    base = PhaseRow(
        rank=rank,
        phase=phase,
        seconds=seconds,
        share=seconds / window,
        count=2,
        median_s=seconds / 2,
        p90_s=seconds / 2,
        util_mean_pct=99.0,
        states=None,
        hollow_s=0.0,
    )
    return replace(base, **changes)


def breakdown() -> Breakdown:
    """The seconds of ``tiny_report``: each rank's add up to 20."""
    parts = (PhasePart("parse", 1.0, 2), PhasePart("score", 5.0, 2))
    rows = (
        phase_row(0, "generate", 8.0),
        phase_row(0, "reward", 6.0, parts=parts, util_mean_pct=15.0),
        phase_row(0, "gather_wait", 4.0, hollow_s=4.0),
        phase_row(0, "backward", 2.0, util_mean_pct=60.0),
        phase_row(1, "generate", 10.0),
        phase_row(1, "reward", 8.0, util_mean_pct=15.0),
        phase_row(1, "backward", 1.0, util_mean_pct=60.0),
        phase_row(1, "unattributed", 1.0, util_mean_pct=None, hollow_s=None),
    )
    totals = (
        phase_row(None, "generate", 18.0, 40.0, count=4, median_s=4.5, p90_s=5.0),
        phase_row(
            None, "reward", 14.0, 40.0, count=4, median_s=3.5, p90_s=4.0, util_mean_pct=15.0, parts=parts
        ),
        phase_row(None, "gather_wait", 4.0, 40.0, hollow_s=4.0),
        phase_row(None, "backward", 3.0, 40.0, count=4, median_s=0.75, p90_s=1.0, util_mean_pct=60.0),
        phase_row(None, "unattributed", 1.0, 40.0, util_mean_pct=None, hollow_s=None),
    )
    waits = (WaitRow(0, "reward", "reward", 1, "gather_wait", 4.0, 2, 2.5),)
    return Breakdown(rows, totals, waits, "generate", "generate", (("generate", 10.0), ("reward", 8.0)))


def stragglers() -> Stragglers:
    """Rank 1 is last in both steps."""
    arrivals = (
        StepArrival(0, 1, 2.5, {0: 2.5, 1: 0.0}, "job-7", 936, 1.9),
        StepArrival(1, 1, 1.5, {0: 1.5, 1: 0.0}, None, None, None),
    )
    return Stragglers(
        steps=2,
        wait_gpu_s=4.0,
        slots_busy=1.9,
        slots=2,
        by_rank=(RankRow(0, 0, 4.0, 0.0), RankRow(1, 2, 0.0, 4.0)),
        by_worker=(WorkerRow(936, 1, 30, 6.5, 2), WorkerRow(937, 0, 34, 5.0, 0)),
        arrivals=arrivals,
        jobs=64,
        job_median_s=0.12,
        job_p99_s=1.8,
        job_max_s=1.9,
    )


def dip(**changes: Any) -> Dip:
    """One dip of GPU 0 in the reward phase."""
    base = Dip(
        host=HOST,
        gpu=0,
        start_s=5.2,
        end_s=8.2,
        depth_pct=84.0,
        baseline_pct=99.0,
        deficit_gpu_s=2.5,
        phase="reward",
        boundary="reward",
        boundary_lag_s=0.2,
        series="utilization",
        scope="gpu",
    )
    return replace(base, **changes)


def tracks() -> Tracks:
    """One sample a second: generate 100 %, reward 15 %, wait 100 % (spinning), backward 60 %."""
    t0 = np.arange(1.0, 21.0)
    code = {name: i for i, name in enumerate(STATES)}
    cycle0 = ["G"] * 4 + ["R"] * 3 + ["w"] * 2 + ["B"]
    cycle1 = ["G"] * 5 + ["R"] * 4 + ["B"]
    util = {"G": 100.0, "R": 15.0, "w": 100.0, "B": 60.0}
    state = {"G": code["compute"], "R": code["light"], "w": code["spinning"], "B": code["compute"]}
    gpus = tuple(
        GpuTrack(
            HOST,
            gpu,
            gpu,
            t0,
            t0 + 1,
            np.array([util[c] for c in cycle * 2]),
            np.array([state[c] for c in cycle * 2], dtype=np.uint8),
        )
        for gpu, cycle in enumerate((cycle0, cycle1))
    )
    phase = {"G": "generate", "R": "reward", "w": "gather_wait", "B": "backward"}
    ranks = tuple(
        RankTrack(
            rank,
            ((HOST, rank),),
            np.arange(1.0, 22.0),
            np.array([CODE[phase[c]] for c in cycle * 2], dtype=np.uint8),
        )
        for rank, cycle in enumerate((cycle0, cycle1))
    )
    return Tracks(gpus, ranks, np.array([1.0, 11.0]))


def tiny_report(**changes: Any) -> Report:
    """The report described at the top of this module; any field can be replaced."""
    gpu_states = (
        states(0, compute=8.0, light=2.0, spinning=4.0),
        states(1, compute=11.0, light=1.0),
    )
    base = Report(
        run=run_info(),
        answer=Answer(
            "Generation is the longest phase and what you pay for. The dips are the reward phase.",
            "generate",
            "generate",
            "step_cycle",
        ),
        states=gpu_states,
        states_all=gpu_states,
        dips=(
            dip(),
            dip(gpu=1, start_s=6.2, end_s=10.2, scope="job"),
            dip(series="work", phase="gather_wait"),
        ),
        job_dips=(dip(gpu=None, scope="job", depth_pct=80.0),),
        phases=breakdown(),
        stragglers=stragglers(),
        tenants=(
            Tenant(HOST, 0, 900, "trainer+engine", 50.0, 80 * 2**30),
            Tenant(HOST, 0, 937, "reward_worker", None, None),
        ),
        missing=(Missing("payload types", "what crossed to the workers", "record with `dipstick run`"),),
        notes=(
            Note("info", "1 duplicated row was dropped."),
            Note("warning", "The clock stepped back by 2 s."),
        ),
        tracks=tracks(),
    )
    return replace(base, **changes)


def receipts() -> tuple[Receipt, ...]:
    """One of each kind that a renderer treats differently."""
    return (
        Receipt("interval", "GPU 0 dips 84 points for 3.0 s", gpu=0, rank=0, t0_s=5.2, t1_s=8.2,
                query="SELECT * FROM dips WHERE gpu = 0"),
        Receipt("bytes", "64 jobs carried list[str]", value=217_088.0, unit="B",
                query="SELECT SUM(payload_b) FROM jobs WHERE payload_types = 'list[str]'"),
        Receipt("code", "pool.submit(score, text)", file="train.py", line=42, origin="static"),
    )  # fmt: skip


def what_ifs() -> list[dict[str, Any]]:
    """A sure one, a bound, one that is not sure, one that is not known."""
    base = {"steps": 2, "reason": None, "upper_bound": False, "held_fixed": "everything else held fixed"}
    return [
        base | {"change": "reward overlapped", "step_speedup": 1.1, "interval": [1.05, 1.15], "saved_gpu_s": 3.5,
                "upper_bound": True},
        base | {"change": "without checkpoint", "step_speedup": 1.5, "interval": [0.9, 2.0], "saved_gpu_s": 9.0,
                "reason": "LOW_N"},
        base | {"change": "reward 2x faster", "step_speedup": 1.25, "interval": [1.2, 1.3], "saved_gpu_s": 8.0},
        base | {"change": "other placement", "step_speedup": None, "interval": None, "saved_gpu_s": None,
                "reason": "MISSING_SIGNAL"},
    ]  # fmt: skip


def checks() -> tuple[Check, ...]:
    """The four checks and the trends: each of the four words once, and a trend that is not there."""
    return (
        Check("alignment", "Are the dips locked to the steps?",
              Verdict("yes", "2 of 2 dips start at reward", 0.9, (0.8, 0.95), 0.0002), receipts()),
        Check("phases", "Which phase is longest?", Verdict("partially", "generate is 50 % of the path", 0.5),
              facts={"what_if": what_ifs(), "replay": {"passed": True}}),
        Check("memory_spikes", "Which event explains each spike?",
              Verdict("unconfirmed", "no step fired twice", reason=Reason.LOW_N, min_detectable=0.4, steps_needed=28),
              facts={"spikes": [], "candidates": [], "unexplained": 0}),
        Check("stragglers", "Do the dips follow the slowest job?", Verdict("no", "rho is 0.02", 0.02, (-0.3, 0.3), 0.8),
              facts={"driver": "total_work", "correlation": 0.02, "interval": [-0.3, 0.3], "steps": 2,
                     "what_if": {"no_straggler_step_speedup": 1.04}}),
        Check("trends", "Does the run change?", Verdict("no", "no drift stands out")),
    )  # fmt: skip


def claims() -> tuple[Claim, ...]:
    """One that holds, one that only the code can settle."""
    return (
        Claim("the dips are the reward phase", "dips_are", {"phase": "reward"}, Verdict("yes", "2 of 2 dips"), receipts()[:1]),
        Claim("generation hands tensors to the workers", "workers_get_tensors", {},
              Verdict("unconfirmed", "payload types were not recorded", reason=Reason.MISSING_SIGNAL,
                      experiment="explain with --repo PATH")),
    )  # fmt: skip


def judged_report(**changes: Any) -> Report:
    """``tiny_report``, judged."""
    return tiny_report(checks=checks(), claims=claims(), **changes)


def empty_report() -> Report:
    """A recording that holds nothing: no GPU, no span, no length."""
    nothing = sampling(
        period_s=None,
        counter_window_s=None,
        smallest_visible_dip_s=None,
        coverage=None,
        source=None,
        has_counters=False,
    )
    run = run_info(
        name="empty",
        seconds=0.0,
        window_s=(0.0, 0.0),
        gpus=0,
        ranks=0,
        steps=0,
        hosts=0,
        sampling=nothing,
        gpu_names=(),
    )
    return Report(
        run=run,
        answer=Answer("Nothing can be said.", None, None, "unknown"),
        states=(),
        states_all=(),
        dips=(),
        job_dips=(),
        phases=None,
        stragglers=None,
        tenants=(),
        missing=(),
        notes=(),
        tracks=Tracks((), (), np.array([])),
    )


def gpus_only_report() -> Report:
    """GPU samples and nothing else: what nvidia-smi alone gives."""
    base = tiny_report(phases=None, stragglers=None, tenants=())
    bare = tuple(replace(track, rank=None) for track in base.tracks.gpus)
    dips = tuple(replace(d, phase=None, boundary=None, boundary_lag_s=None) for d in base.dips)
    run = replace(base.run, ranks=0, steps=0)
    return replace(base, run=run, dips=dips, tracks=Tracks(bare, (), np.array([])))


def many_report(gpus: int = 16) -> Report:
    """Many GPUs and ranks on two hosts: the widest tables, more lanes than a screen has lines."""
    base = tiny_report()
    track, rank = base.tracks.gpus[0], base.tracks.ranks[0]
    hosts = [f"host{gpu // 8}" for gpu in range(gpus)]
    gpu_tracks = tuple(replace(track, host=hosts[g], gpu=g % 8, rank=g) for g in range(gpus))
    rank_tracks = tuple(replace(rank, rank=g, gpus=((hosts[g], g % 8),)) for g in range(gpus))
    all_states = tuple(replace(base.states[0], host=hosts[g], gpu=g % 8) for g in range(gpus))
    rows = tuple(phase_row(r, "generate", 19.0 - r / 10) for r in range(gpus))
    rest = tuple(phase_row(r, "unattributed", 1.0 + r / 10, util_mean_pct=None) for r in range(gpus))
    totals = tuple(
        phase_row(None, name, sum(r.seconds for r in part), 20.0 * gpus)
        for name, part in (("generate", rows), ("unattributed", rest))
    )
    found = Breakdown((*rows, *rest), totals, (), "generate", "generate", ())
    run = replace(base.run, gpus=gpus, ranks=gpus, hosts=2)
    tracks_all = Tracks(gpu_tracks, rank_tracks, base.tracks.step_start_s)
    return replace(base, run=run, states=all_states, states_all=all_states, phases=found, tracks=tracks_all)


def hostile_report() -> Report:
    """Every recorded string is an attack, and NaN and infinity stand where numbers should."""
    base = tiny_report()
    assert base.phases is not None
    assert base.stragglers is not None
    nan = float("nan")
    odd = PhasePart(HOSTILE, 3.0, 1)
    rows = (phase_row(0, HOSTILE, 20.0, parts=(odd,), util_mean_pct=nan, hollow_s=float("inf")),)
    totals = (phase_row(None, HOSTILE, 20.0, parts=(odd,), median_s=nan, p90_s=None),)
    waits = (WaitRow(0, HOSTILE, HOSTILE, None, HOSTILE, 4.0, 2, nan),)
    arrivals = (StepArrival(0, 0, 1.0, {0: 0.0}, HOSTILE, 1, nan),)
    found = replace(base.stragglers, arrivals=arrivals, slots_busy=nan, job_max_s=nan)
    evil = Receipt("code", HOSTILE, gpu=0, t0_s=nan, file=HOSTILE, line=1, query=f"SELECT '{HOSTILE}'")
    verdict = Verdict("unconfirmed", HOSTILE, nan, (nan, nan), nan, Reason.GAP, experiment=HOSTILE)
    edit = {
        "change": HOSTILE,
        "step_speedup": nan,
        "interval": [nan, nan],
        "reason": HOSTILE,
        "held_fixed": HOSTILE,
    }
    return replace(
        base,
        checks=(
            Check("phases", HOSTILE, verdict, (evil,), {"what_if": [edit]}),
            Check(HOSTILE, HOSTILE, verdict),
        ),
        claims=(Claim(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, verdict, (evil,)),),
        run=replace(base.run, name=HOSTILE, gpu_names=(HOSTILE,), unused_gpus=(HOSTILE,), hosts=2),
        answer=Answer(HOSTILE, HOSTILE, HOSTILE, "unknown"),
        states=tuple(replace(s, host=HOSTILE) for s in base.states),
        dips=(dip(phase=HOSTILE, host=HOSTILE, boundary=HOSTILE, boundary_lag_s=nan),),
        phases=Breakdown(rows, totals, waits, HOSTILE, HOSTILE, ((HOSTILE, nan),)),
        stragglers=found,
        tenants=(Tenant(HOSTILE, 0, 1, HOSTILE, nan, None),),
        missing=(Missing(HOSTILE, HOSTILE, HOSTILE),),
        notes=(Note("warning", HOSTILE),),
        tracks=replace(base.tracks, gpus=tuple(replace(t, host=HOSTILE) for t in base.tracks.gpus)),
        extra={"note": HOSTILE, "value": nan},
    )
