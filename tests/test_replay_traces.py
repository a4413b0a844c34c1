"""The replay on the real H200 traces: it must meet the measured steps and the seconds worked out by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dipstick.analysis.replay import gate, run_stages
from dipstick.analysis.replay_model import TRL_STAGES, Jobs, Loop
from dipstick.analysis.replay_paid import paid
from dipstick.analysis.replay_path import critical_path
from dipstick.analysis.replay_waits import blame_shares, last_arrivers
from dipstick.analysis.whatif import WhatIfs
from dipstick.analysis.whatif_blame import blame_workers
from dipstick.analysis.whatif_verdict import phase_dominates, rank_is_straggler

TRACES = Path(__file__).parents[2] / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="needs the real traces in ../shared")

Spans = dict[tuple[int, str], list[tuple[float, float]]]
LOGPS = "GRPOTrainer._get_per_token_logps_and_entropies"
REWARD = "GRPOTrainer._calculate_rewards"


def rows_of(name: str, kind: str, rank: int) -> list[dict[str, Any]]:
    """Rows of one JSONL file, training steps only."""
    lines = (TRACES / name / f"{kind}.r{rank}.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["step"] >= 0]


def spans_of(name: str, rank: int) -> Spans:
    """(start, end) seconds of the spans of each step and name."""
    spans: Spans = defaultdict(list)
    for row in rows_of(name, "spans", rank):
        spans[row["step"], row["name"]].append((row["t0"] / 1e9, row["t1"] / 1e9))
    return spans


def total(spans: list[tuple[float, float]]) -> float:
    """Sum of lengths."""
    return sum(end - start for start, end in spans)


def stage_seconds(spans: Spans, k: int, opens: tuple[float, float, float]) -> list[float]:
    """The eleven columns of ``TRL_STAGES`` of one rank; ``opens``: when each stage's work could begin."""
    reward = spans[k, REWARD][0]
    first = [total(spans[k - 1, "checkpoint"]), total(spans[k, "GRPOTrainer.sync_weights"])]
    first.append(total(spans[k, "GRPOTrainer.vLLM.generate"]))
    second = [total([s for s in spans[k, LOGPS] if s[1] <= reward[0]]), total([reward])]
    third = [total(spans[k, "GRPOTrainer.compute_loss"]), total(spans[k, "backward"]), 0.0]
    ends = (spans[k, "GRPOTrainer.vLLM.generate"][-1][1], reward[1], spans[k, "backward"][-1][1])
    parts = zip((first, second, third), ends, opens, strict=True)
    return [value for part, end, opened in parts for value in (*part, end - opened - sum(part))]


def jobs_of(name: str, spans: list[Spans], steps: int) -> Jobs:
    """The job logs of two ranks with two workers each."""
    rows = [row for rank in (0, 1) for row in rows_of(name, "jobs", rank)]
    rows.sort(key=lambda row: (row["step"], row["rank"], row["submitted"]))
    key = np.array([(row["step"], row["rank"]) for row in rows])
    sent = np.array([row["submitted"] for row in rows]) / 1e9
    begun, ended = (np.array([row[name] for row in rows]) / 1e9 for name in ("t0", "t1"))
    outside, since = np.zeros((steps, 2)), np.zeros(len(rows))
    for k in range(steps):
        for r in (0, 1):
            mine = (key == (k, r)).all(axis=1)
            start, end = spans[r][k, REWARD][0]
            outside[k, r] = sent[mine].min() - start + end - ended[mine].max()
            since[mine] = sent[mine] - sent[mine].min()
    pids = np.unique([row["pid"] for row in rows], return_inverse=True)[1]
    return Jobs(key[:, 0], key[:, 1], ended - begun, np.array([2, 2]), outside, since, pids.astype(np.int64))


@cache
def load(name: str) -> Loop:
    """One trace as a loop; a barrier opens when the last rank's work before it ends."""
    spans = [spans_of(name, rank) for rank in (0, 1)]
    steps = 1 + max(k for k, span in spans[0] if span == "step")
    ends = {
        (what, k): max(s[k, what][-1][1] for s in spans)
        for what in ("GRPOTrainer.vLLM.generate", REWARD, "backward")
        for k in range(steps)
    }
    ends["backward", -1] = min(s[0, "step"][0][0] for s in spans)
    seconds = np.zeros((steps, 11, 2))
    for k in range(steps):
        opens = ends["backward", k - 1], ends["GRPOTrainer.vLLM.generate", k], ends[REWARD, k]
        for r in (0, 1):
            seconds[k, :, r] = stage_seconds(spans[r], k, opens)
    measured = np.diff([ends["backward", k] for k in range(-1, steps)])
    jobs = jobs_of(name, spans, steps)
    zeros = np.zeros((steps, 3))
    return Loop(TRL_STAGES, seconds, zeros, zeros[:, 0], measured, np.array([1, 1]), jobs)


@pytest.mark.parametrize("name", ["h200x2-grpo", "h200x2-grpo-135m"])
def test_list_scheduling_meets_the_measured_steps(name: str) -> None:
    """The gate passes with room: 1,984 jobs on 2 x 2 workers land within half a percent (median)."""
    result = gate(load(name))

    assert result.passed
    assert result.median < 0.005


def test_the_bill_of_the_flagship_run() -> None:
    """The README's table, both ranks: reward 116.4 + 147.1, gather wait 81.7 + 51.2."""
    bill = paid(load("h200x2-grpo"))
    seconds = {(row.name, row.kind): round(row.gpu_s, 1) for row in bill.rows}

    assert seconds["reward", "phase"] == pytest.approx(116.4 + 147.1, abs=0.2)
    assert seconds["generate", "phase"] == pytest.approx(60.3 + 60.9, abs=0.2)
    assert seconds["weight_sync", "phase"] == pytest.approx(7.0 + 7.2, abs=0.2)
    assert seconds["reward", "wait"] == pytest.approx(81.7 + 51.2, abs=0.3)
    assert bill.most == "reward"
    assert bill.gap_ok


def test_reward_is_the_longest_phase_of_the_flagship_run() -> None:
    """About half of the critical path, well ahead of generation."""
    path = critical_path(load("h200x2-grpo"), np.random.default_rng(0))

    assert path.longest == "reward"
    assert phase_dominates(path, "reward", gate(load("h200x2-grpo"))).verdict == "yes"
    assert phase_dominates(path, "generate").verdict == "no"


def test_no_single_rank_is_the_straggler_of_the_flagship_and_rank_1_is_that_of_the_135m_run() -> None:
    """20 of 31 (p = 0.15 after Holm) and 11 of 12 (0.006)."""
    verdicts = {}
    for name in ("h200x2-grpo", "h200x2-grpo-135m"):
        loop = load(name)
        rows = last_arrivers(blame_shares(run_stages(loop, loop.seconds).arrive[:, 1]))
        verdicts[name] = [rank_is_straggler(row, loop.steps).verdict for row in rows]

    assert verdicts == {"h200x2-grpo": ["no", "unconfirmed"], "h200x2-grpo-135m": ["no", "yes"]}


def test_the_flagships_reward_is_bound_by_queued_work() -> None:
    """A third worker helps three times as much as cutting every job at 2 s; no worker is slow."""
    loop = load("h200x2-grpo")
    whatifs = WhatIfs(loop)
    slots, cap = whatifs.more_slots(1).speedup, whatifs.cap_jobs(2).speedup
    workers = blame_workers(loop, np.random.default_rng(0))

    assert slots.low > cap.high
    assert slots.value - 1 > 2.5 * (cap.value - 1)
    assert workers is not None
    assert workers.skipped
