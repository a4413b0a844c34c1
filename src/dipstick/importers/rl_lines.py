"""What one console line of OpenRLHF, SkyRL, NeMo-RL, slime or prime-rl says: numbers of a step, or a timer's edge."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from dipstick.importers.rl_text import members, number

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["row", "part", "step", "end", "start"]
"""``row``: numbers of a finished step. ``part``: numbers that belong to the step at hand. ``step``: a new step begins.
``end``, ``start``: a timer's edge, with its seconds in ``values`` at the end."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a line says.

    Attributes:
        framework: Who wrote it.
        kind: What it is.
        step: The step it names; None: the one at hand.
        name: The timer's key, of an edge.
        values: Numbers by key.
    """

    framework: str
    kind: Kind
    step: int | None = None
    name: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


_OPENRLHF: Final = re.compile(r"Global step (\d{1,15})(?: \[\w+\])?: (?=\{)")
_SLIME: Final = re.compile(r"(?:^|\s)(?:perf|step|rollout|eval) (\d{1,15}): (?=\{)")
_SLIME_TIMER: Final = re.compile(r"\bTimer ([\w/]{1,80}) (start|end)(?: \(elapsed: ([\d.]{1,20})s\))?")
_SKYRL: Final = re.compile(r"\b(Started|Finished): '([\w/]{1,80})'(?:, time cost: ([\d.]{1,20})s)?")
_NEMO_STEP: Final = re.compile(r"={5,} Step (\d{1,15})/\d{1,15} ={5,}")
_NEMO: Final = re.compile(r"^\s*• ([\w/ .-]{1,80}): ([-\d.eE+]{1,30})(s?)(?: \([\d.]+%\))?\s*$")
_PRIME: Final = re.compile(r"\bStep (\d{1,15}) \| (?:Step )?Time: ([\d.]{1,20})s(?: \||$)")
_PRIME_CELL: Final = re.compile(r"\| ([A-Za-z][\w .]{0,40}): ([-\d.eE+]{1,30})")

SNIFF: Final = re.compile(
    r"Global step \d+(?: \[\w+\])?: \{|\bperf \d+: \{|\bTimer \w+ end \(elapsed: |\bFinished: '\w+', time cost: "
    r"|• Total step time: [\d.]+s|\bStep \d+ \| (?:Step )?Time: [\d.]+s"
)
"""Any of them."""


def said(text: str) -> Said | None:
    """What the line says, None if nothing."""
    for word, reader in _READERS:
        if word in text and (found := reader(text)) is not None:
            return found
    return None


def _openrlhf(text: str) -> Said | None:
    match = _OPENRLHF.search(text)
    return (
        None if match is None else Said("OpenRLHF", "row", int(match[1]), values=members(text[match.end() :]))
    )


def _slime(text: str) -> Said | None:
    match = _SLIME.search(text)
    return (
        None if match is None else Said("slime", "part", int(match[1]), values=members(text[match.end() :]))
    )


def _slime_timer(text: str) -> Said | None:
    match = _SLIME_TIMER.search(text)
    return None if match is None else _edge("slime", f"perf/{match[1]}_time", match[2] == "start", match[3])


def _prime(text: str) -> Said | None:
    match = _PRIME.search(text)
    seconds = number(match[2]) if match else None
    if match is None or seconds is None:
        return None
    cells = _PRIME_CELL.findall(text[match.end() - 1 :])
    values = {name.strip(): value for name, cell in cells if (value := number(cell)) is not None}
    return Said("prime-rl", "row", int(match[1]), values={"time/step": seconds, **values})


def _skyrl(text: str) -> Said | None:
    match = _SKYRL.search(text)
    return None if match is None else _edge("SkyRL", f"timing/{match[2]}", match[1] == "Started", match[3])


def _edge(framework: str, key: str, starts: bool, seconds: str | None) -> Said | None:  # noqa: FBT001 - which edge
    if starts:
        return Said(framework, "start", name=key)
    value = number(seconds or "")
    return None if value is None else Said(framework, "end", name=key, values={key: value})


def _nemo(text: str) -> Said | None:
    """``===== Step 3/100 =====``, and ``• generation: 4.50s (40.0%)`` below it."""
    if match := _NEMO_STEP.search(text):
        return Said("NeMo-RL", "step", int(match[1]))
    match = _NEMO.match(text)
    value = number(match[2]) if match else None
    if match is None or value is None:
        return None
    name = match[1].strip()
    if match[3] != "s":
        return Said("NeMo-RL", "part", values={f"train/{name}": value})
    key = "total_step_time" if name == "Total step time" else name
    return Said("NeMo-RL", "part", values={f"timing/train/{key}": value})


_READERS: Final = (
    ("Global step", _openrlhf), ("time cost", _skyrl), ("Started: '", _skyrl), (": {", _slime),
    ("Timer ", _slime_timer), ("===", _nemo), ("\u2022", _nemo), ("Time: ", _prime),
)  # fmt: skip
"""What a line must hold, and who reads it: most lines hold none, and cost no search."""
