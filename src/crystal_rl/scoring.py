"""One task to one result: edit, check, relax, score. What a worker runs; needs no pool.

    scorer = load_scorer("chgnet", device="cuda:0")     # once a process: 5-15 s of imports, 0.1 s of weights
    scorer.warm_up()                                    # one small relaxation
    result = scorer.evaluate(task)                      # any number of times

The same task gives the same result: bit for bit on a CPU, to the last digits on a GPU, whose sums have no fixed order.
A completion that fails is a result; an exception out of ``evaluate`` is the surrogate's or ours (out of memory, say),
never the completion's.
"""

from __future__ import annotations

import functools
import math
import time
from typing import TYPE_CHECKING, Protocol

from crystal_rl import edits, properties, rules
from crystal_rl.atoms import from_atoms, to_atoms
from crystal_rl.errors import CrystalError, Rejection, rejected
from crystal_rl.messages import Relaxation, Result, Span, Strain, Structure, Target, Task, Terms
from crystal_rl.relax import Deadline, RelaxationStoppedError, relax
from crystal_rl.reward import closeness, reward, stability
from crystal_rl.surrogate import DEFAULT, load_surrogate

if TYPE_CHECKING:
    from collections.abc import Callable

    from crystal_rl.relax import Relaxed
    from crystal_rl.surrogate import Surrogate

    Beat = Callable[[int, float], None]

NS = 1_000_000_000
_REMEMBERED = 4096  # start structures whose formation energy is kept


class Evaluates(Protocol):
    """What a worker needs; :class:`Scorer` and the fakes of tests are such."""

    @property
    def model(self) -> str:
        """Name and version: ``chgnet-0.3.0``."""

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:0``."""

    def warm_up(self) -> None:
        """Run the model once, so that the first task pays for no start."""

    def evaluate(self, task: Task, beat: Beat | None = None) -> Result:
        """Score one task.

        Args:
            task: What to do.
            beat: Called at each relaxation step with the step and the largest force, eV/Å; may raise to stop.
        """


class _Spans:
    """Consecutive spans: each begins where the one before ended."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last = clock()
        self.done: tuple[Span, ...] = ()

    def close(self, name: str) -> None:
        """What was done since the last one."""
        now = self._clock()
        self.done = (*self.done, Span(name, self._last, now))
        self._last = now


class Scorer:
    """A surrogate that scores tasks.

    Args:
        surrogate: See :func:`crystal_rl.surrogate.load_surrogate`.
        clock: Monotonic ns, of the spans and the deadline.

    Raises:
        CrystalError: The surrogate has no reference energies.
    """

    def __init__(self, surrogate: Surrogate, clock: Callable[[], int] = time.monotonic_ns) -> None:
        if not surrogate.references:
            raise CrystalError(
                f"{surrogate.model} has no reference energies of the elements",
                fix="crystal-rl structures --references computes them",
            )
        self.surrogate = surrogate
        self._clock = clock
        self._start_energy = functools.lru_cache(_REMEMBERED)(self._formation_energy)

    @property
    def model(self) -> str:
        """Name and version of the surrogate."""
        return self.surrogate.model

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.surrogate.device

    def warm_up(self) -> None:
        """Score one small task, and ask SMACT once."""
        self.evaluate(_WARM_UP)
        properties.is_sensible("NaCl")
        self._start_energy.cache_clear()

    def evaluate(self, task: Task, beat: Beat | None = None) -> Result:
        """Score one task; see :class:`Evaluates`.

        Raises:
            CrystalError: The goal's property is unknown here: the job is at fault, not the completion.
        """
        spans, steps = _Spans(self._clock), 0
        deadline = Deadline.after(task.deadline_s, lambda: self._clock() / NS)
        stage = "edit"
        try:
            edited = edits.apply(to_atoms(task.structure), task.edits)
            rules.check(edited)
            spans.close(stage)
            stage = "relax"
            relaxed = relax(
                edited, self.surrogate.calculator, task.relax, seed=task.seed, deadline=deadline, beat=beat
            )
            steps = relaxed.steps
            spans.close(stage)
            stage = "score"
            value, terms = self._score(task, relaxed, deadline)
        except Rejection as failure:
            spans.close(stage)
            steps = max(steps, failure.steps if isinstance(failure, RelaxationStoppedError) else 0)
            return rejected(task.id, failure.code, str(failure), steps=steps, spans=spans.done)
        final = from_atoms(relaxed.atoms)
        spans.close(stage)
        return Result(
            task.id, ok=True, reward=reward(terms), value=value, terms=terms, steps=steps, final=final,
            spans=spans.done,
        )  # fmt: skip

    def _score(self, task: Task, relaxed: Relaxed, deadline: Deadline) -> tuple[float, Terms]:
        atoms = relaxed.atoms
        value = properties.value_of(task.goal.property, atoms, self.surrogate, deadline)
        energy = properties.formation_energy(atoms, self.surrogate.references)
        if not (math.isfinite(value) and math.isfinite(energy)):
            raise Rejection("diverged", f"{task.goal.property} is {value}, formation energy {energy}")
        start = self._start_energy(task.structure)
        return value, Terms(
            closeness=closeness(task.goal, value),
            stability=stability(energy, start),
            chemistry=float(properties.is_sensible(atoms.get_chemical_formula())),
            edits=len(task.edits),
            formation_energy=energy,
            formation_energy_start=start,
        )

    def _formation_energy(self, structure: Structure) -> float:
        atoms = to_atoms(structure)
        atoms.calc = self.surrogate.calculator
        return properties.formation_energy(atoms, self.surrogate.references)


_ROCKSALT = Structure(
    numbers=(11, 17),
    cell=((0.0, 2.82, 2.82), (2.82, 0.0, 2.82), (2.82, 2.82, 0.0)),
    positions=((0.0, 0.0, 0.0), (2.82, 2.82, 2.82)),
)
_WARM_UP = Task(
    "warm-up", _ROCKSALT, (Strain("all", 1.0),), Target("density", 2.0, 1.0), Relaxation(max_steps=3)
)


def load_scorer(name: str = DEFAULT, device: str = "cpu") -> Scorer:
    """A surrogate by its name, ready to score.

    Raises:
        UsageError: There is no such surrogate.
        CrystalError: Its package is not installed, or it has no reference energies.
    """
    return Scorer(load_surrogate(name, device))
