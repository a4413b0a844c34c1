"""Evaluation: fresh problems, as many answers as asked for, scored as in training."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from crystal_fakes import FakeScorer

pytest.importorskip("ase")

from crystal_rl import evaluate, worker
from crystal_rl.cli.evaluate import told
from crystal_rl.errors import CrystalError
from crystal_rl.problems import draw
from crystal_rl.settings import Settings
from crystal_rl.structures import shipped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from crystal_rl.prompts import Message

GOOD = '<modification><strain axis="all" percent="4"/></modification>'


def evaluated(monkeypatch: pytest.MonkeyPatch, settings: Settings, *answers: str) -> evaluate.Evaluation:
    """With threads for workers, and a model that gives these answers in turn."""
    monkeypatch.setattr(worker, "_here", [worker._Worker(0, worker.Plan("fake"), FakeScorer())])

    def generate(conversations: Sequence[list[Message]]) -> list[str]:
        return [answers[i % len(answers)] for i in range(len(conversations))]

    with ThreadPoolExecutor(2) as threads:
        return evaluate.score(settings, generate, threads)


def test_every_problem_is_answered_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three problems, four answers each, every other one good."""
    found = evaluated(monkeypatch, Settings(tasks=3, completions=4, surrogate="fake"), GOOD, "no")
    assert (found.summary.completions, found.summary.ok, found.summary.codes) == (12, 6, {"no_block": 6})
    assert found.summary.mean_reward == pytest.approx((0.4 - 1.0) / 2)
    assert [each.problem for each in found.scored] == [0] * 4 + [1] * 4 + [2] * 4
    assert found.metrics["valid"] == 0.5


def test_problems_are_not_those_of_training() -> None:
    """The same seed draws others."""
    training = draw(shipped(), 20, seed=3)
    assert draw(shipped(), 20, seed=3 + evaluate.HELD_OUT) != training


def test_the_result_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean, the shares, and what failed how often."""
    found = evaluated(monkeypatch, Settings(tasks=1, completions=4, surrogate="fake"), GOOD, "no")
    assert told(found).splitlines() == [
        "4 completions: mean reward -0.300; 50% valid, 2 relaxed.",
        "no_block  2",
    ]


def test_a_folder_without_an_adapter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is loaded."""
    monkeypatch.setattr(evaluate, "check_packages", list)
    with pytest.raises(CrystalError, match="no LoRA adapter"):
        evaluate.evaluate(Settings(), str(tmp_path), pytest.fail)
