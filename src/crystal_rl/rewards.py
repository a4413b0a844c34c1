"""The reward function that TRL calls on every rank: text in, numbers out, every term logged.

Parsing happens here, on the CPU of the trainer's process; the rest in the rank's modification workers. What crosses to
them is a pickled :class:`~crystal_rl.messages.Task` of about a kilobyte. TRL gathers the rewards across ranks afterwards.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from crystal_rl.dispatch import score_all
from crystal_rl.errors import CODES
from crystal_rl.messages import Relaxation, Task, plain
from crystal_rl.problems import task_of
from crystal_rl.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from crystal_rl.messages import Edit, Result
    from crystal_rl.problems import Problem
    from crystal_rl.settings import Settings

    RewardFunction = Callable[..., list[float | None]]


@dataclass(frozen=True, slots=True)
class Scored:
    """A completion and what became of it.

    Attributes:
        problem: Index of the question.
        text: The completion.
        edits: What it asks for; None if it does not parse.
        result: Exactly one.
    """

    problem: int
    text: str
    edits: tuple[Edit, ...] | None
    result: Result


@dataclass(frozen=True, slots=True)
class Judge:
    """Scores the completions of one rank.

    Attributes:
        problems: The questions; a completion names its own by index.
        elements: What the surrogate knows.
        executor: The rank's workers.
        settings: Relaxation, deadline, seed.
        rank: Of this process.
    """

    problems: Sequence[Problem]
    elements: Collection[str]
    executor: Executor
    settings: Settings
    rank: int = 0

    def judge(self, step: int, texts: Sequence[str], problems: Sequence[int]) -> list[Scored]:
        """Score the completions of a step, in order."""
        pairs = list(zip(texts, problems, strict=True))
        asked = [self._asked(f"s{step}.r{self.rank}.c{i}", *pair) for i, pair in enumerate(pairs)]
        tasks = [each for each in asked if isinstance(each, Task)]
        results = score_all(tasks, self.executor, is_serial=self.settings.serial)
        scored = {result.id: result for result in results}
        return [
            Scored(problem, text, each.edits, scored[each.id])
            if isinstance(each, Task)
            else Scored(problem, text, None, each)
            for (text, problem), each in zip(pairs, asked, strict=True)
        ]

    def _asked(self, name: str, text: str, problem: int) -> Task | Result:
        s = self.settings
        return task_of(
            name,
            text,
            self.problems[problem],
            self.elements,
            relax=Relaxation(fmax=s.fmax, max_steps=s.relax_steps),
            deadline_s=s.deadline_s,
            seed=rattle_seed(s.seed, self.problems[problem].id, text),
        )


def rattle_seed(seed: int, problem: str, text: str) -> int:
    """Of the run's seed, the question and the answer alone: an answer is worth the same on each rank and step."""
    digest = hashlib.blake2b(f"{seed}\n{problem}\n{text}".encode(errors="replace"), digest_size=4)
    return int.from_bytes(digest.digest())


def metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """What a rank logs of a step: shares of its completions, and means over those that were scored.

    ``valid`` parses; ``sound`` also passes the edits and the checks; ``ok`` relaxes as well. ``S``, ``E``, ``C`` are the
    terms of the reward. A share of nothing is left out, never zero.
    """
    results = [each.result for each in scored]
    stages = [CODES[result.code].stage if result.code else None for result in results]
    summary = summarise(results, [each.edits for each in scored])
    terms = [result.terms for result in results if result.terms is not None]
    steps = [result.steps for result in results if result.steps]
    means = {
        "strain_only": summary.strain_only,
        "with_add": summary.with_add,
        "duplicates": summary.duplicates,
        "S": fmean(term.closeness for term in terms) if terms else None,
        "E": fmean(term.stability for term in terms) if terms else None,
        "C": fmean(term.chemistry for term in terms) if terms else None,
        "relax_steps": fmean(steps) if steps else None,
    }
    return {
        "valid": fmean(stage != "parse" for stage in stages),
        "sound": fmean(stage not in {"parse", "apply", "check"} for stage in stages),
        "ok": fmean(result.ok for result in results),
        "lost": fmean(result.reward is None for result in results),
        **{f"code/{code}": count / len(results) for code, count in summary.codes.items()},
        **{name: value for name, value in means.items() if value is not None},
    }


def make_reward(judge: Judge, samples: Path) -> RewardFunction:
    """The function to hand to TRL.

    Args:
        judge: Of this rank.
        samples: A JSON-lines file; each completion is appended with its result.
    """

    def modification_reward(
        prompts: list[Any],
        completions: list[Any],
        problem: list[int],
        trainer_state: Any,
        log_metric: Callable[[str, float], None],
        **_: object,
    ) -> list[float | None]:
        """None for a completion that no worker could score: TRL leaves it out of its group."""
        del prompts
        step = int(trainer_state.global_step)
        scored = judge.judge(step, [text_of(each) for each in completions], problem)
        for name, value in metrics(scored).items():
            log_metric(f"crystal/{name}", value)
        with samples.open("a", encoding="utf-8") as file:
            file.writelines(lines(step, judge, scored))
        return [each.result.reward for each in scored]

    return modification_reward


def text_of(completion: str | list[dict[str, str]]) -> str:
    """A completion's text; TRL hands conversations on as lists of messages."""
    return completion if isinstance(completion, str) else completion[0]["content"]


def lines(step: int, judge: Judge, scored: Sequence[Scored]) -> Iterator[str]:
    """One JSON object a completion."""
    for each in scored:
        result = plain(each.result)
        del result["final"]  # large, and a function of the rest
        said = {"step": step, "problem": judge.problems[each.problem].id, "completion": each.text, **result}
        yield json.dumps(said) + "\n"
