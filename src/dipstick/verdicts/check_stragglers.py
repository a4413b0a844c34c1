"""Check 4: do the dips follow the slowest worker, who comes last, and what would be left without stragglers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dipstick.analysis.replay_waits import (
    LastArriver,
    barrier_waits,
    blame_shares,
    last_arrivers,
    persistence,
)
from dipstick.analysis.straggler_tests import LONGEST, StragglerTest, judge_stragglers
from dipstick.analysis.whatif_blame import blame_longest_job, blame_ranks, blame_workers
from dipstick.analysis.whatif_verdict import rank_is_straggler
from dipstick.judgement import Check, Reason, Receipt, Verdict
from dipstick.verdicts import slow_workers
from dipstick.verdicts.algebra import from_decision, unconfirmed
from dipstick.verdicts.dip_series import completion_length, drivers, reward_dips
from dipstick.verdicts.evidence import NO_BARRIER
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.analysis.waits import Meetings
    from dipstick.analysis.whatif_blame import Attribution
    from dipstick.model import FloatArray, IntArray
    from dipstick.verdicts.evidence import Evidence

QUESTION = "Do the dips follow the slowest reward job, and is one rank or worker the straggler?"
RECORD_IT = "dipstick run records both on one clock"
DRIVER_WORDS = {
    "longest_job": "the longest job of the step",
    "total_work": "the work queued for the workers",
    "makespan": "how the jobs packed onto the workers",
    "timeouts": "jobs that ran into the time limit",
}


def check(evidence: Evidence) -> Check:
    """Judge the straggler story; ranks are tested exactly, so short runs can still name one."""
    test, verdict = dips_follow(evidence), judge(evidence)
    facts = {"last_arrivers": [_row(row, evidence) for row in arrivers(evidence)], **_what_if(evidence)}
    facts |= {
        "slow_workers": slow_workers.facts(evidence),
        "barriers": _barriers(evidence),
        "persistence": _persistence(evidence),
    }
    if test is None:
        facts |= {"driver": "unresolved", "correlation": None, "interval": None}
    else:
        longest = test.row(LONGEST)
        facts |= {
            "driver": test.driver,
            "correlation": longest.rho.value if longest else None,
            "interval": [longest.rho.low, longest.rho.high] if longest else None,
            "drivers": [_driver(row) for row in test.rows],
            "steps": test.steps,
        }
    return Check("stragglers", QUESTION, verdict, receipts(evidence), facts)


def judge(evidence: Evidence) -> Verdict:
    """On "the dips follow the longest reward job"."""
    test = dips_follow(evidence)
    if test is not None:
        return _verdict(test)
    if not evidence.findings.gpus and (seen := _from_spans(evidence)) is not None:
        return seen
    missing = "no reward jobs with worker times beside GPU telemetry"
    return unconfirmed(Reason.MISSING_SIGNAL, missing if evidence.synchronous else NO_BARRIER)


def _from_spans(evidence: Evidence) -> Verdict | None:
    """Without telemetry: is one rank or worker the straggler? Spans and jobs say; whether dips follow it stays open."""
    found, known = straggler_rank(evidence), slow_workers.workers(evidence)
    parts: list[Verdict] = [*([found[1]] if found else ()), *(worker.verdict for worker in known)]
    if not parts:
        return None
    told = max(parts, key=lambda part: part.rank)
    return replace(
        told, because=f"{told.because}; GPU telemetry would add whether the dips follow: {RECORD_IT}"
    )


def dips_follow(evidence: Evidence) -> StragglerTest | None:
    """The test of methods 4.4 on the kept steps; None where jobs or telemetry are missing."""
    return evidence.once("dips_follow", _dips_follow)


def _dips_follow(evidence: Evidence) -> StragglerTest | None:
    found, by_driver = reward_dips(evidence), drivers(evidence)
    if found is None or not by_driver:
        return None
    return judge_stragglers(found.width_s, by_driver, completion_length(evidence), found.window_s)


def arrivers(evidence: Evidence) -> tuple[LastArriver, ...]:
    """The exact last-arriver test at the reward gather, over all steps (it needs no warm-up rule)."""
    met = gather(evidence)
    return () if met is None else last_arrivers(blame_shares(met.arrival / 1e9))


def gather(evidence: Evidence) -> Meetings | None:
    """Every meeting of the ranks at the reward gather; None where they do not meet."""
    met = next((m for m in evidence.findings.meetings if m.barrier.name == "reward"), None)
    return met if met is not None and len(met.step) and evidence.synchronous else None


def straggler_rank(evidence: Evidence) -> tuple[LastArriver, Verdict] | None:
    """The rank that comes last most often and whether it is *the* straggler; None with fewer than two ranks."""
    rows, met = arrivers(evidence), gather(evidence)
    if not rows or met is None:
        return None
    top = max(rows, key=lambda row: row.share.value)
    return top, rank_verdict(top, met)


def rank_verdict(row: LastArriver, met: Meetings) -> Verdict:
    """Whether one rank is the straggler, in words."""
    count = len(met.step)
    because = f"rank {met.ranks[row.rank]} is last in {row.share.value * count:z.0f} of {count} steps (exact binomial p = {row.p_holm:.3g} after Holm)"
    return from_decision(rank_is_straggler(row, count), because)


def _verdict(test: StragglerTest) -> Verdict:
    longest = test.row(LONGEST)
    if longest is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "no longest job per step")
    if not np.isfinite(longest.rho.value):
        code = Reason(test.codes[0]) if test.codes else Reason.LOW_N
        return unconfirmed(code, f"no correlation of dips and jobs can be worked out from {test.steps} steps")
    winner = test.row(test.driver)
    because = f"dip width against the longest job: partial rho {longest.rho.value:z.2f}, {longest.slope.value:z.2f} s of dip per second of job"
    if winner is not None and winner is not longest:
        because += (
            f"; {DRIVER_WORDS[test.driver]} explains them better "
            f"(rho {winner.rho.value:z.2f}, {winner.slope.value:z.2f} s per second, contest {winner.share:z.2f})"
        )
    return Verdict(
        word=test.verdict,
        because=f"{because}, {test.steps} steps",
        effect=longest.rho.value,
        interval=(longest.rho.low, longest.rho.high),
        p=longest.p_value,
        reason=Reason(test.codes[0]) if test.codes else None,
        min_detectable=None if test.verdict == "yes" else test.detectable_rho,
        steps_needed=test.steps_needed if test.verdict == "unconfirmed" else None,
    )


def _driver(row: Any) -> dict[str, Any]:
    return {
        "driver": row.name,
        "rho": row.rho.value,
        "interval": [row.rho.low, row.rho.high],
        "p_adjusted": row.p_adjusted,
        "slope": row.slope.value,
        "slope_interval": [row.slope.low, row.slope.high],
        "contest": row.share,
    }


def _row(row: LastArriver, evidence: Evidence) -> dict[str, Any]:
    met = gather(evidence)
    assert met is not None  # noqa: S101 - there is a row
    count = len(met.step)
    return {
        "rank": met.ranks[row.rank],
        "last_in_steps": row.share.value * count,
        "steps": count,
        "p": row.p,
        "p_holm": row.p_holm,
        "verdict": rank_is_straggler(row, count).verdict,
    }


def _barriers(evidence: Evidence) -> list[dict[str, Any]] | None:
    """Waiting at each barrier of the kept steps: its price, whom to blame, and what fixing a rank alone gives back."""
    loop, steps = evidence.loop, evidence.steps
    if loop is None or steps is None or loop.ranks < 2 or not evidence.synchronous:  # noqa: PLR2004 - a wait takes two
        return None
    return [
        {
            "barrier": found.name,
            "wait_gpu_s": found.wait_gpu_s,
            "share": found.share,
            "imbalance": found.imbalance,
            "by_rank": [
                {"rank": rank, "waited_s": waited, "blame_gpu_s": blame, "recoverable_s": back, "last_in_steps": last}
                for rank, waited, blame, back, last in zip(
                    steps.ranks, found.waited_s.tolist(), found.blame_gpu_s.tolist(),
                    found.recoverable_s.tolist(), found.last_count.tolist(), strict=True,
                )
            ],
        }
        for found in barrier_waits(loop)
    ]  # fmt: skip


def _persistence(evidence: Evidence) -> dict[str, Any] | None:
    """Does the rank that comes last stay last from step to step? Shuffled steps are the comparison."""
    met = gather(evidence)
    if met is None or len(met.step) < 3:  # noqa: PLR2004 - two steps have one neighbour
        return None
    found = persistence(met.last.astype(np.float64), evidence.rng(21))
    return {"agreement": found.agreement, "expected": found.expected, "p": found.p}


def _what_if(evidence: Evidence) -> dict[str, Any]:
    """What the run would gain without its straggling ranks, workers or longest jobs."""
    loop = evidence.loop
    if loop is None:
        return {"what_if": None, "attribution": None}
    found = [blame_ranks(loop, evidence.rng(2)) if loop.ranks > 1 and evidence.synchronous else None]
    found += [blame_workers(loop, evidence.rng(3)), blame_longest_job(loop, evidence.rng(4))]
    known = [attribution for attribution in found if attribution is not None]
    longest = next((a for a in known if a.peers == "longest_job" and a.causes), None)
    capped = _without_longest(evidence)
    return {
        "what_if": {
            "no_straggler_step_speedup": capped,
            "equal_jobs_step_speedup": longest.speedup.value if longest else None,
        },
        "attribution": [_attribution(a, evidence) for a in known],
    }


def _without_longest(evidence: Evidence) -> float | None:
    """S if every step's longest job took the second longest's time: the straggler gone, the queue left."""
    whatifs = evidence.whatifs
    if whatifs is None or whatifs.loop.jobs is None or not whatifs.gate.passed:
        return None
    jobs = whatifs.loop.jobs
    shorter = np.minimum(jobs.seconds, second_longest(jobs.step, jobs.seconds, whatifs.loop.steps)[jobs.step])
    edited = whatifs.edit("no longest job", lambda loop: replace(loop, jobs=replace(jobs, seconds=shorter)))
    return float(edited.speedup.value)


def second_longest(step: IntArray, seconds: FloatArray, steps: int) -> FloatArray:
    """Seconds of the second longest job of each step; of its only job where it has one, 0 where it has none.

    Example: jobs of 3, 1 and 2 s in step 0, 5 s in step 1, none in step 2: 2, 5, 0.
    """
    order = np.lexsort((-seconds, step))
    ordered = np.append(seconds[order], 0.0)
    first = np.searchsorted(step[order], np.arange(steps))
    count = np.bincount(step, minlength=steps)
    second: FloatArray = np.where(count > 0, ordered[first + (count > 1)], 0.0)
    return second


def _attribution(found: Attribution, evidence: Evidence) -> dict[str, Any]:
    """As a fact; ranks and workers are named as the framework does, not by their place in the replay."""
    steps = evidence.steps
    named = {f"rank {place}": f"rank {rank}" for place, rank in enumerate(steps.ranks if steps else ())}
    named |= {
        f"worker {place}": f"worker {pid}" for place, (_, pid) in enumerate(steps.workers if steps else ())
    }
    return {
        "peers": found.peers,
        "speedup": found.speedup.value,
        "interval": [found.speedup.low, found.speedup.high],
        "skipped": found.skipped,
        "causes": [
            {
                "name": named.get(c.name, c.name),
                "s_x": c.s_x.value,
                "removed": c.removed.value,
                "added": c.added.value,
                "interacts": c.interacts,
            }
            for c in found.causes
        ],
    }


def receipts(evidence: Evidence) -> tuple[Receipt, ...]:
    """Who came last how often, and how busy the workers were."""
    return tuple(_receipts(evidence))


def _receipts(evidence: Evidence) -> Iterator[Receipt]:
    stragglers = evidence.findings.stragglers
    start, end = evidence.findings.window
    for row in stragglers.by_rank if stragglers else ():
        yield Receipt(
            kind="count",
            text=f"rank {row.rank} came last at the reward gather in {row.last_in_steps} of {stragglers.steps if stragglers else 0} steps and waited {row.waited_s:z.1f} s",
            rank=row.rank,
            value=row.last_in_steps,
            unit="steps",
            query=select("COUNT(*)", "waits", barrier="reward", rank=row.rank, late_rank=row.rank),
        )
    for worker in stragglers.by_worker if stragglers else ():
        yield Receipt(
            kind="number",
            text=f"worker {worker.pid} of rank {worker.rank}: {worker.jobs} jobs, busy {worker.busy_s:z.1f} s",
            rank=worker.rank,
            value=worker.busy_s,
            unit="s",
            query=select(
                "SUM(t1_ns - t0_ns) / 1e9",
                "jobs",
                f"t0_ns >= {start}",
                f"t1_ns <= {end}",
                pid=worker.pid,
                rank=worker.rank,
            ),
        )
