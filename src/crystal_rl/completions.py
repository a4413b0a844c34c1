"""Completions from a file to tasks: what ``crystal-rl score`` reads."""

from __future__ import annotations

import functools
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crystal_rl.errors import CrystalError, UsageError
from crystal_rl.messages import Limit, Relaxation, Target
from crystal_rl.problems import Problem, task_of
from crystal_rl.structures import find

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection

    from crystal_rl.messages import Goal, Result, Task

MAX_BYTES = 100_000_000


def read_text(name: str) -> str:
    """The file, or stdin for ``-``; bytes that are no UTF-8 become U+FFFD.

    Raises:
        CrystalError: It cannot be read, is too large, or is empty.
    """
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CrystalError(f"cannot be read: {error.strerror}", where=name) from error
    if len(data) > MAX_BYTES:
        raise CrystalError(f"has more than {MAX_BYTES:,} bytes", where=name, fix="split it")
    if not data.strip():
        raise CrystalError("holds no completion", where="stdin" if name == "-" else name)
    return data.decode("utf-8", "replace")


def jobs_of(text: str, options: Namespace, elements: Collection[str]) -> list[Task | Result]:
    """One job a completion: a task, or at once the result of what does not parse.

    Args:
        text: JSON lines if it begins with ``{``, else one completion.
        options: Of ``crystal-rl score``: the structure, the goal and how to relax.
        elements: Those that the surrogate knows.

    Raises:
        CrystalError: A line is no such object.
        UsageError: No structure or no goal for a completion.
    """
    lines = [(0, {"completion": text})] if not text.lstrip().startswith("{") else _objects(text)
    seen: dict[str, Problem] = {}
    jobs: list[Task | Result] = []
    for number, line in lines:
        problem = _problem(line, options, seen, number)
        name = str(line.get("id", f"c{len(jobs)}"))[:100]
        relax = Relaxation(options.fmax, options.max_steps)
        jobs.append(
            task_of(
                name, line["completion"], problem, elements,
                relax=relax, deadline_s=options.deadline, seed=options.seed % 2**32,
            )
        )  # fmt: skip
    return jobs


def _objects(text: str) -> list[tuple[int, dict[str, Any]]]:
    rows = [(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
    return [(number, _object(number, line)) for number, line in rows]


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CrystalError(f"not JSON: {error}", where=f"line {number}") from error
    if not isinstance(value, dict) or not isinstance(value.get("completion"), str):
        raise CrystalError(
            "not an object with a text named completion",
            where=f"line {number}",
            fix='{"completion": "<modification>...</modification>"}',
        )
    return value


def _problem(line: dict[str, Any], options: Namespace, seen: dict[str, Problem], number: int) -> Problem:
    name, goal = line.get("structure", options.structure), line.get("goal")
    key = json.dumps([name, goal], sort_keys=True)
    if key not in seen:
        if not isinstance(name, str):
            raise UsageError("which structure do the completions edit?", fix="--structure ID")
        wanted = _option_goal(options) if goal is None else _line_goal(goal, number)
        seen[key] = Problem(str(number), _crystal(name), wanted, math.nan)
    return seen[key]


_crystal = functools.cache(find)


def _option_goal(options: Namespace) -> Goal:
    name = options.property
    if options.target is not None:
        return _checked(Target(name, options.target, options.width), "")
    if options.higher or options.lower:
        low, high = options.higher or options.lower
        return _checked(Limit(name, "higher" if options.higher else "lower", low, high), "")
    raise UsageError(
        "what is the goal?", fix="--target T --width W, or --higher LOW HIGH, or --lower LOW HIGH"
    )


def _line_goal(value: Any, number: int) -> Goal:
    where = f"line {number}"
    try:
        if "target" in value:
            return _checked(
                Target(str(value["property"]), float(value["target"]), float(value["width"])), where
            )
        low, high = float(value["low"]), float(value["high"])
        return _checked(Limit(str(value["property"]), value["direction"], low, high), where)
    except (KeyError, TypeError, ValueError) as error:
        raise CrystalError(f"the goal is none: {error!r}", where=where) from error


def _checked(goal: Goal, where: str) -> Goal:
    """A width above 0, low below high: else rewards would be divided by zero."""
    numbers = (goal.target, goal.width) if isinstance(goal, Target) else (goal.low, goal.high)
    if not all(map(math.isfinite, numbers)):
        raise CrystalError("the goal's numbers must be finite", where=where)
    if isinstance(goal, Target) and goal.width <= 0:
        raise CrystalError(f"a width of {goal.width:g}: it must be above 0", where=where)
    if isinstance(goal, Limit) and (goal.low >= goal.high or goal.direction not in {"lower", "higher"}):
        raise CrystalError("a limit needs low < high, and lower or higher as direction", where=where)
    return goal
