"""The reward function: text in, one number a completion out, every term logged, and nothing lost is scored."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from crystal_fakes import SALT, FakeScorer

pytest.importorskip("ase")

from crystal_rl import worker
from crystal_rl.messages import Target
from crystal_rl.problems import Problem
from crystal_rl.rewards import Judge, make_reward, metrics, rattle_seed, text_of
from crystal_rl.settings import Settings
from crystal_rl.structures import Crystal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from crystal_rl.messages import Result, Task

PROBLEM = Problem("0-salt", Crystal("salt", "ClNa", "rocksalt", SALT), Target("density", 2.0, 1.0), 1.5)
STRAIN = '<modification><strain axis="all" percent="{}"/></modification>'
LOST = STRAIN.format("-9.5")


class Scorer(FakeScorer):
    """Loses one answer, else rewards with the strain / 10."""

    def evaluate(self, task: Task, beat: Any = None) -> Result:
        if task.edits[0].percent == -9.5:  # type: ignore[union-attr] # a strain
            raise MemoryError
        return super().evaluate(task, beat)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    """Two threads as workers."""
    monkeypatch.setattr(worker, "_here", [worker._Worker(0, worker.Plan("fake"), Scorer())])
    with ThreadPoolExecutor(2) as threads:
        yield Judge(
            [PROBLEM], {"Na", "Cl"}, threads, Settings(relax_steps=7, fmax=0.2, deadline_s=9.0), rank=1
        )


def test_each_completion_gets_its_own_reward_in_order(judge: Judge) -> None:
    """Parsed ones from the workers, the others at once."""
    texts = [STRAIN.format("5"), "I think", STRAIN.format("1"), "<modification><warp/></modification>"]
    scored = judge.judge(12, texts, [0, 0, 0, 0])
    assert [each.result.reward for each in scored] == [0.5, -1.0, 0.1, -1.0]
    assert [each.result.id for each in scored] == [f"s12.r1.c{i}" for i in range(4)]
    assert [each.result.code for each in scored] == [None, "no_block", None, "unknown_edit"]
    assert [each.edits is None for each in scored] == [False, True, False, True]


def test_a_task_carries_what_was_set(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Structure, goal, relaxation, deadline, and a seed of its own."""
    seen: list[Task] = []

    def watched(self: Scorer, task: Task, beat: Any = None) -> Result:
        seen.append(task)
        return FakeScorer.evaluate(self, task, beat)

    monkeypatch.setattr(Scorer, "evaluate", watched)
    judge.judge(0, [STRAIN.format("5")], [0])
    assert (seen[0].structure, seen[0].goal, seen[0].deadline_s) == (SALT, PROBLEM.goal, 9.0)
    assert (seen[0].relax.max_steps, seen[0].relax.fmax) == (7, 0.2)
    assert seen[0].seed == rattle_seed(0, "0-salt", STRAIN.format("5"))


def test_an_answer_is_worth_the_same_wherever_it_is_given() -> None:
    """Its rattle depends on the run's seed, the question and the answer, not on rank, step or place."""
    assert rattle_seed(0, "p", "a") == rattle_seed(0, "p", "a")
    assert (
        len(
            {
                rattle_seed(0, "p", "a"),
                rattle_seed(1, "p", "a"),
                rattle_seed(0, "q", "a"),
                rattle_seed(0, "p", "b"),
            }
        )
        == 4
    )
    assert 0 <= rattle_seed(0, "p", "\ud800") < 2**32


def test_metrics_are_shares_and_means(judge: Judge) -> None:
    """Of four answers: three parse, one is lost, two of the parsed are equal; nothing unknown is zero."""
    scored = judge.judge(0, [STRAIN.format("5"), STRAIN.format("5"), LOST, "?"], [0, 0, 0, 0])
    found = metrics(scored)
    assert found["valid"] == 0.75
    assert (found["ok"], found["lost"], found["code/no_block"]) == (0.5, 0.25, 0.25)
    assert found["duplicates"] == pytest.approx(2 / 3)
    assert found["strain_only"] == 1.0
    assert "S" not in found


def test_what_trl_gets(judge: Judge, tmp_path: Path) -> None:
    """A number each, None for what no worker could score; metrics under one prefix; a line a completion on disk."""
    logged: dict[str, float] = {}
    reward = make_reward(judge, tmp_path / "samples.jsonl")
    got = reward(
        prompts=["q"] * 3,
        completions=[[{"role": "assistant", "content": STRAIN.format("2")}], LOST, ""],
        problem=[0, 0, 0],
        trainer_state=SimpleNamespace(global_step=4),
        log_metric=logged.__setitem__,
        completion_ids=[],
    )
    assert got == [0.2, None, -1.0]
    assert logged["crystal/lost"] == pytest.approx(1 / 3)
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [(row["step"], row["problem"], row["reward"], row["code"]) for row in rows] == [
        (4, "0-salt", 0.2, None),
        (4, "0-salt", None, "worker_lost"),
        (4, "0-salt", -1.0, "no_block"),
    ]


def test_the_text_of_a_completion() -> None:
    """Plain, or the last message of a conversation."""
    assert text_of("a") == "a"
    assert text_of([{"role": "assistant", "content": "b"}]) == "b"
