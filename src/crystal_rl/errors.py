"""What can be wrong with a completion, in stable codes, and what can be wrong with a command.

A completion that fails is a result, not an exception of the program: :class:`Rejection` ends its evaluation and becomes
a :class:`~crystal_rl.messages.Result` with the code's stage reward. The first failure wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crystal_rl.messages import Result, Span
from dipstick.errors import DipstickError, UsageError

__all__ = ["CODES", "STAGE_REWARDS", "Code", "CrystalError", "Rejection", "Stage", "UsageError", "rejected"]

Stage = Literal["parse", "apply", "check", "relax", "worker"]

STAGE_REWARDS: dict[Stage, float | None] = {
    "parse": -1.0,
    "apply": -0.8,
    "check": -0.6,
    "relax": -0.4,
    "worker": None,  # nothing is known about the chemistry: the sample is masked and counted
}


@dataclass(frozen=True, slots=True)
class Code:
    """One way to fail.

    Attributes:
        name: Stable; what logs, tests and metrics are keyed by.
        stage: Where; it sets the reward.
        when: In words, for the documentation.
    """

    name: str
    stage: Stage
    when: str

    @property
    def reward(self) -> float | None:
        """What a completion that ends here gets; None: it is masked."""
        return STAGE_REWARDS[self.stage]


_ALL = (
    Code("no_block", "parse", "no `<modification>` after the last `</think>`, or it is not closed"),
    Code("many_blocks", "parse", "two or more `<modification>` blocks"),
    Code("too_long", "parse", "the block has more than 4,096 bytes of UTF-8"),
    Code("unsafe_xml", "parse", "`<!` or `<?` in the block: DOCTYPE, entity, comment, CDATA, instruction"),
    Code("bad_xml", "parse", "not well formed, text inside, or nested deeper than one edit"),
    Code("unknown_edit", "parse", "a tag that is no edit"),
    Code("edit_count", "parse", "no edit, or more than 4"),
    Code("bad_attribute", "parse", "an attribute missing, extra, not a number, or out of range"),
    Code("unknown_element", "parse", "not a chemical symbol, or not covered by the surrogate"),
    Code("absent_element", "apply", "the structure has no such element"),
    Code("bad_site", "apply", "the index is out of range, or another element sits there"),
    Code("no_change", "apply", "from = to, or composition, cell and positions unchanged"),
    Code("too_small", "apply", "fewer than 2 atoms left"),
    Code("too_big", "apply", "more than 64 atoms"),
    Code("too_close", "check", "two atoms nearer than 0.6 of the sum of their covalent radii, periodically"),
    Code("bad_volume", "check", "volume per atom outside 4-80 Å³"),
    Code("diverged", "relax", "NaN, a force over 50 eV/Å, or the volume below x0.5 or above x2"),
    Code("not_converged", "relax", "the step cap was reached"),
    Code("timeout", "relax", "the deadline passed"),
    Code("worker_lost", "worker", "the worker died, hung or failed in itself twice on the task"),
)
CODES: dict[str, Code] = {code.name: code for code in _ALL}


class Rejection(Exception):  # noqa: N818 - an outcome, not an error of the program
    """A completion fails: ``code`` is a key of CODES, the message is for the log."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def rejected(
    task_id: str, code: str, message: str, *, steps: int = 0, spans: tuple[Span, ...] = ()
) -> Result:
    """The result of a completion that failed: with the reward of the code's stage, None for ``worker_lost``."""
    return Result(
        task_id, ok=False, reward=CODES[code].reward, code=code, message=message, steps=steps, spans=spans
    )


class CrystalError(DipstickError):
    """A command cannot do what it was asked: what, where, what to do about it."""
