"""Planted against found: the confusion table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dipstick.selftest.findings import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dipstick.selftest.scenarios import Scenario

State = Literal["found", "silent", "missed", "false", "open"]
MARKS: Final[Mapping[State, str]] = {"found": "+", "silent": ".", "missed": "-", "false": "!", "open": "?"}
LEGEND: Final = "+ found as planted   . silent as planted   - missed   ! false   ? not decided by the truth"


@dataclass(frozen=True, slots=True)
class Cell:
    """One finding of one scenario.

    Attributes:
        expected: What was planted; empty if it must be silent.
        found: What the product said; empty if it was silent.
        state: ``false``: said where nothing, or something else, was planted.
    """

    finding: str
    expected: str
    found: str
    state: State


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scenario, judged.

    Attributes:
        error: Why the product gave no report; empty if it gave one.
        seconds: How long writing and explaining took.
    """

    scenario: str
    about: str
    cells: tuple[Cell, ...]
    seconds: float = 0.0
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether everything came out as planted."""
        return not self.error and all(cell.state not in {"missed", "false"} for cell in self.cells)

    def count(self, state: State) -> int:
        """Cells in a state."""
        return sum(cell.state == state for cell in self.cells)


def compare(scenario: Scenario, found: Mapping[str, str]) -> tuple[Cell, ...]:
    """Hold what was found against what was planted, finding by finding.

    Example: planted ``rank 1``, found ``rank 0``: false. Planted ``rank 1``, found nothing: missed.
    """
    return tuple(
        _cell(name, scenario.expected.get(name, ""), found.get(name, ""), free=name in scenario.open)
        for name in FINDINGS
    )


def _cell(name: str, expected: str, found: str, *, free: bool) -> Cell:
    if free:
        return Cell(name, expected, found, "open")
    if found == expected:
        return Cell(name, expected, found, "found" if expected else "silent")
    return Cell(name, expected, found, "false" if found else "missed")


def table(outcomes: Sequence[Outcome]) -> str:
    """The confusion table, what differed, and the summary line."""
    names = list(FINDINGS)
    width = max([len("scenario"), *(len(o.scenario) for o in outcomes)])
    numbers = " ".join(f"{i:>2}" for i in range(1, len(names) + 1))
    lines = [f"{'scenario':<{width}} {numbers}  said"]
    lines += [_row(outcome, width) for outcome in outcomes]
    lines += ["", LEGEND]
    lines += [f"{i:>2} {name}: {FINDINGS[name][0]}" for i, name in enumerate(names, 1)]
    differed = [line for outcome in outcomes for line in _differences(outcome)]
    return "\n".join([*lines, "", *differed, summary(outcomes)])


def _row(outcome: Outcome, width: int) -> str:
    if outcome.error:
        return f"{outcome.scenario:<{width}} {outcome.error}"
    marks = " ".join(f" {MARKS[cell.state]}" for cell in outcome.cells)
    said = ", ".join(_said(cell) for cell in outcome.cells if cell.found and cell.state != "open")
    return f"{outcome.scenario:<{width}} {marks}  {said}"


def _said(cell: Cell) -> str:
    return cell.finding if cell.found == "yes" else cell.found


def _differences(outcome: Outcome) -> list[str]:
    if outcome.error:
        return [f"{outcome.scenario}: no report: {outcome.error}"]
    return [
        f"{outcome.scenario}: {cell.finding}: planted {cell.expected or 'nothing'}, found {cell.found or 'nothing'}"
        for cell in outcome.cells
        if cell.state in {"missed", "false"}
    ]


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line: how many came out as planted, and how many findings were false or missed."""
    passed = sum(outcome.passed for outcome in outcomes)
    false, missed = (sum(o.count(state) for o in outcomes) for state in ("false", "missed"))
    line = f"{passed} of {len(outcomes)} scenarios as planted, {false} false findings"
    return f"{line}, {missed} missed" if missed else line
