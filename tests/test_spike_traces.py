"""The real H200 runs, read from their raw files: what spikes, dips and jobs must say (traces/README.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dipstick.analysis.design import Timeline
from dipstick.analysis.dip_timing import timing_contest
from dipstick.analysis.dip_width import dip_widths
from dipstick.analysis.spike_events import EventOptions, SpikeVerdicts, judge_schedules
from dipstick.analysis.spike_schedules import Schedule
from dipstick.analysis.spikes import SpikeSet, find_spikes, union_onsets
from dipstick.analysis.straggler_tests import StragglerTest, judge_stragglers

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.model import FloatArray

PHASE_OF = {
    "sync_weights": "weight_sync",
    "vLLM.generate": "generate",
    "_calculate_rewards": "reward",
    "_get_per_token_logps_and_entropies": "logprobs",
    "compute_loss": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "checkpoint": "checkpoint",
}
WINDOW_S = 0.2


@dataclass(frozen=True)
class Rank:
    """One rank's spans and jobs (seconds since the first step), and its GPU's 5 Hz sample buffer."""

    spans: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    ts: FloatArray
    util: FloatArray
    memory: FloatArray

    def times(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Starts and ends of the spans of a name, in training, in order."""
        rows = sorted((s["t0"], s["t1"]) for s in self.spans if s["name"].endswith(name) and s["step"] >= 0)
        return np.array([a for a, _ in rows]), np.array([b for _, b in rows])

    def edges(self) -> FloatArray:
        """Step edges."""
        start, end = self.times("step")
        return np.append(start, end[-1])

    def timeline(self) -> Timeline:
        """Exclusive phases: innermost forward wins over its log-probabilities, gaps are unattributed."""
        found = [
            (s["t0"], s["t1"], PHASE_OF[s["name"].removeprefix("GRPOTrainer.")])
            for s in self.spans
            if s["step"] >= 0 and s["name"].removeprefix("GRPOTrainer.") in PHASE_OF
        ]
        forward = [(a, b) for a, b, p in found if p == "forward"]
        rows = sorted(
            f for f in found if f[2] != "logprobs" or not any(a <= f[0] and f[1] <= b for a, b in forward)
        )
        names = ("unattributed", *sorted(set(PHASE_OF.values())))
        edges, codes = [rows[0][0]], list[int]()
        for start, end, phase in rows:
            if start > edges[-1]:
                edges.append(start)
                codes.append(0)
            if end > edges[-1]:
                edges.append(end)
                codes.append(names.index(phase))
        return Timeline(np.array(edges), np.array(codes), names)


def read(folder: Path, rank: int) -> Rank:
    """One rank of a trace folder."""
    spans = [json.loads(line) for line in (folder / f"spans.r{rank}.jsonl").read_text().splitlines()]
    jobs = [json.loads(line) for line in (folder / f"jobs.r{rank}.jsonl").read_text().splitlines()]
    zero = min(s["t0"] for s in spans if s["name"] == "step" and s["step"] >= 0)
    for row in (*spans, *jobs):
        row["t0"], row["t1"] = (row["t0"] - zero) / 1e9, (row["t1"] - zero) / 1e9
    rows = np.genfromtxt(folder / "buf.csv", delimiter=",", skip_header=1)
    rows = rows[rows[:, 1] == rank]
    util, memory = (rows[rows[:, 2] == kind] for kind in (1, 2))
    n = min(util.shape[0], memory.shape[0])
    ts = memory[:n, 0] / 1e6 - zero / 1e9
    keep = (ts > 0) & (ts < max(s["t1"] for s in spans if s["name"] == "step"))
    return Rank(
        spans,
        jobs,
        ts[keep],
        np.interp(ts[keep], util[:, 0] / 1e6 - zero / 1e9, util[:, 3]),
        memory[:n, 3][keep],
    )


@pytest.fixture(params=[0, 1])
def rank(traces: Path, request: pytest.FixtureRequest) -> Rank:
    """Both ranks of the flagship run."""
    return read(traces / "h200x2-grpo", request.param)


def spikes(rank: Rank) -> SpikeSet:
    """Spikes of its GPU's memory-access time."""
    return find_spikes(rank.ts - WINDOW_S, rank.ts, rank.memory, rank.timeline())


def schedules(rank: Rank) -> SpikeVerdicts:
    """The three suspects of the seed."""
    suspects = [Schedule(n, *rank.times(n)) for n in ("sync_weights", "checkpoint", "empty_cache")]
    onsets = union_onsets([spikes(rank)], 0.3)
    return judge_schedules(onsets, rank.edges(), suspects, EventOptions(WINDOW_S, 0.05, 0.5))


def stragglers(rank: Rank) -> StragglerTest:
    """Reward dips against the rank's own jobs on its two workers."""
    lo, hi = rank.times("_calculate_rewards")
    width = dip_widths(rank.ts, rank.util, WINDOW_S, (lo, hi), np.full(lo.size, 99.0)).width_s
    steps = range(lo.size)
    seconds = [np.array([j["t1"] - j["t0"] for j in rank.jobs if j["step"] == k]) for k in steps]
    ends = [max(j["t1"] for j in rank.jobs if j["step"] == k) for k in steps]
    starts = [min(j["t0"] for j in rank.jobs if j["step"] == k) for k in steps]
    drivers = {
        "longest_job": np.array([s.max() for s in seconds]),
        "total_work": np.array([s.sum() / 2 for s in seconds]),
        "makespan": np.array(ends) - np.array(starts),
    }
    return judge_stragglers(width, drivers, {"completion_length": np.full(lo.size, 224.0)}, WINDOW_S)


def test_decode_is_the_spike_of_every_step_and_belongs_to_generation(rank: Rank) -> None:
    """81 % memory access, 31 of 31."""
    row = next(r for r in spikes(rank).levels if r.phase == "generate")

    assert (row.occurrences, row.with_spike) == (31, 31)
    assert row.level_pct == pytest.approx(81, abs=1)


def test_weight_sync_shows_its_own_small_spike(rank: Rank) -> None:
    """35 % memory access (README), beside the decode that follows it: the one schedule that is confirmed."""
    verdicts = {r.name: r.verdict for r in schedules(rank).schedules}

    assert verdicts["sync_weights"] == "yes"


def test_no_spike_is_given_to_checkpoints_or_cache_clears(rank: Rank) -> None:
    """With six checkpoints and five clears "no" is out of reach, but neither is confirmed."""
    verdicts = {r.name: r.verdict for r in schedules(rank).schedules}

    assert verdicts["checkpoint"] in {"no", "unconfirmed"}
    assert verdicts["empty_cache"] in {"no", "unconfirmed"}


def test_hardly_any_spike_matches_nothing(rank: Rank) -> None:
    """At most a few single windows of backward passes."""
    assert len(schedules(rank).unexplained) <= 5


def test_the_driver_of_the_reward_dips_is_queued_work(rank: Rank) -> None:
    """1.9 of 2 slots busy: the longest job correlates, with a slope of 2, but total work explains."""
    found = stragglers(rank)
    longest = found.row("longest_job")

    assert (found.driver, found.verdict) == ("total_work", "partially")
    assert longest is not None
    assert longest.slope.low > 1


def test_dip_widths_follow_the_reward_phases_lengths(rank: Rank) -> None:
    """A little shorter than the phase, because the workers' own kernels read as utilization."""
    lo, hi = rank.times("_calculate_rewards")
    width = dip_widths(rank.ts, rank.util, WINDOW_S, (lo, hi), np.full(lo.size, 99.0)).width_s
    long = hi - lo > 1

    assert np.corrcoef(width, hi - lo)[0, 1] > 0.97
    assert 0.7 < np.median(width[long] / (hi - lo)[long]) < 1.0


def test_the_dip_ends_with_the_last_job_not_with_the_longest(rank: Rank) -> None:
    """Lag 2 ms against the last job's end."""
    hi = rank.times("_calculate_rewards")[1]
    jobs = [[j for j in rank.jobs if j["step"] == k] for k in range(hi.size)]
    anchors = {
        "last_job": np.array([max(j["t1"] for j in step) for step in jobs]),
        "longest_job": np.array([max(step, key=lambda j: j["t1"] - j["t0"])["t1"] for step in jobs]),
    }
    found = timing_contest(hi, anchors)

    assert found.winner == "last_job"
    assert found.lag_s["last_job"] < 0.01


def test_twelve_steps_of_the_small_run_say_what_they_lack(traces: Path) -> None:
    """h200x2-grpo-135m: the check needs 15 steps."""
    found = stragglers(read(traces / "h200x2-grpo-135m", 1))

    assert (found.verdict, found.codes, found.steps) == ("unconfirmed", ("LOW_N",), 12)
    assert found.steps_needed >= 15
