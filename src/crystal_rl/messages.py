"""What goes to a worker and what comes back: frozen, plain, picklable; nothing here imports ASE or torch.

A :class:`Task` is one completion's edits on one structure with one goal; its :class:`Result` is exactly one, whatever
happens. Times are nanoseconds of the worker's monotonic clock; the :class:`Hello` of the same worker maps them to
Unix time. :func:`crystal_rl.scoring.Scorer` turns one into the other.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

Vector = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Structure:
    """A periodic crystal.

    Attributes:
        numbers: Atomic numbers, one an atom.
        cell: The three cell vectors, Å.
        positions: Cartesian, Å, one an atom.
    """

    numbers: tuple[int, ...]
    cell: tuple[Vector, Vector, Vector]
    positions: tuple[Vector, ...]


@dataclass(frozen=True, slots=True)
class Substitute:
    """Atoms of one element become another: one site, or (None) every atom of it."""

    old: str
    new: str
    site: int | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Two elements swap places everywhere."""

    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Atoms of one element go: one site, or (None) every atom of it."""

    element: str
    site: int | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """One atom more, at fractional coordinates in [0, 1), or (None) in the largest void."""

    element: str
    at: Vector | None = None


@dataclass(frozen=True, slots=True)
class Strain:
    """The cell grows by ``percent`` along one cell vector or all; atoms scale with it."""

    axis: Literal["a", "b", "c", "all"]
    percent: float


Edit = Substitute | Exchange | Remove | Add | Strain


@dataclass(frozen=True, slots=True)
class Target:
    """Bring a property to ``target``; a miss by ``width`` or more is worth nothing. Units: those of the property."""

    property: str
    target: float
    width: float


@dataclass(frozen=True, slots=True)
class Limit:
    """Make a property as ``lower`` or as ``higher`` as possible: linear between ``low`` and ``high``."""

    property: str
    direction: Literal["lower", "higher"]
    low: float
    high: float


Goal = Target | Limit


@dataclass(frozen=True, slots=True)
class Relaxation:
    """How to relax: until no force exceeds ``fmax`` (eV/Å), at most ``max_steps``, the cell too if ``cell``."""

    fmax: float = 0.1
    max_steps: int = 100
    cell: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """One completion to score.

    Attributes:
        id: Unique in a run: ``s12.g3.c5`` is completion 5 of group 3 of step 12.
        structure: The crystal to edit.
        edits: 1 to 4, in order.
        goal: What is wanted.
        relax: How to relax the edited crystal.
        deadline_s: Seconds from the start of the work on it; checked at each relaxation step.
        seed: Of the 0.01 Å rattle before the relaxation: the same task gives the same result.
    """

    id: str
    structure: Structure
    edits: tuple[Edit, ...]
    goal: Goal
    relax: Relaxation = Relaxation()
    deadline_s: float = 30.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """The parts of a reward: ``0.1 + 0.4 S + 0.3 E + 0.2 C - 0.02 (edits - 1)``.

    Attributes:
        closeness: S, 0 to 1.
        stability: E, 0 to 1.
        chemistry: C, 0 or 1: charge-neutral or all-metal.
        edits: How many.
        formation_energy: Of the relaxed crystal, eV/atom.
        formation_energy_start: Of the crystal before the edits, eV/atom.
    """

    closeness: float
    stability: float
    chemistry: float
    edits: int
    formation_energy: float
    formation_energy_start: float


@dataclass(frozen=True, slots=True)
class Span:
    """What a worker did when: ``queue``, ``edit``, ``relax``, ``score``; monotonic ns."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a task.

    Attributes:
        id: The task's.
        ok: A relaxed, converged crystal was scored.
        reward: 0 to 1 if ok, -1.0 to -0.4 by the stage that failed; None: nothing is known about the chemistry
            (``worker_lost``), the sample is to be masked, never to be scored as bad.
        code: None if ok, else a code of :data:`crystal_rl.errors.CODES`.
        message: None if ok, else one sentence for the log.
        value: The goal's property of the relaxed crystal.
        terms: The parts of the reward; None unless ok.
        steps: Relaxation steps taken.
        final: The relaxed crystal; None unless ok.
        spans: Where the time went.
    """

    id: str
    ok: bool
    reward: float | None
    code: str | None = None
    message: str | None = None
    value: float | None = None
    terms: Terms | None = None
    steps: int = 0
    final: Structure | None = None
    spans: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker is warmed up: the model is loaded and has been run once."""

    worker: int
    pid: int
    device: str
    model: str
    mono_ns: int
    unix_ns: int


@dataclass(frozen=True, slots=True)
class Beat:
    """A relaxation is alive: its step and largest force, eV/Å."""

    id: str
    step: int
    fmax: float


def plain(message: Task | Result | Hello | Beat | Structure) -> dict[str, Any]:
    """The message as JSON-ready dictionaries and lists; edits and goals carry their ``type``."""
    value = dataclasses.asdict(message)
    if isinstance(message, Task):
        value["edits"] = [_typed(edit) for edit in message.edits]
        value["goal"] = _typed(message.goal)
    return value


def _typed(part: Edit | Goal) -> dict[str, Any]:
    return {"type": type(part).__name__.lower(), **dataclasses.asdict(part)}
