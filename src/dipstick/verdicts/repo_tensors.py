"""Whether a payload holds torch tensors: yes, no, or can't be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_resolve import DEPTH
from dipstick.verdicts.repo_types import CONTAINERS, NO_TENSORS, canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dipstick.verdicts.repo_infer import Inference
    from dipstick.verdicts.repo_scope import Scope
    from dipstick.verdicts.repo_types import Ty

MODULES: Final = ("torch.nn.", "transformers.AutoModel", "transformers.PreTrainedModel", "peft.PeftModel")
"""Objects that own parameters: pickling one ships its tensors."""
PLAIN_BASES: Final = frozenset(
    {
        "object", "Exception", "ValueError", "RuntimeError", "abc.ABC", "enum.Enum", "enum.StrEnum", "enum.IntEnum",
        "typing.NamedTuple", "typing.Protocol", "typing.TypedDict", "typing.Generic", "pydantic.BaseModel",
    }
)  # fmt: skip
NESTING: Final = 6


def any_of(answers: Iterable[bool | None]) -> bool | None:
    """True if any is, None if any is unknown, else False."""
    seen = set(answers)
    if True in seen:
        return True
    return None if None in seen else False


def holds_tensors(inference: Inference, ty: Ty, depth: int = NESTING) -> bool | None:
    """Whether a value of this type holds torch tensors; None if that can't be told.

    Example:
        ``list[ase.Atoms]`` no; ``dict[str, torch.Tensor]`` yes; a list of unknown elements: None; a
        dataclass of the checkout with a field ``forces: torch.Tensor``: yes.
    """
    if ty.device == "cuda" or ty.name == "torch.Tensor" or ty.name.startswith(MODULES):
        return True
    if ty.name in NO_TENSORS:
        return False
    if depth <= 0:
        return None
    if ty.name in CONTAINERS:
        return any_of(holds_tensors(inference, part, depth - 1) for part in ty.args) if ty.args else None
    return _fields(inference, ty.scope, depth) if ty.scope is not None else None


def _fields(inference: Inference, scope: Scope, depth: int) -> bool | None:
    """Whether an object of the checkout's class has a field that holds tensors; methods do not count."""
    checkout = inference.checkout
    bases = [canonical(name) for name in checkout.outside_bases(scope)]
    answers: list[bool | None] = [True for name in bases if name.startswith(MODULES)]
    answers += [None for name in bases if name not in PLAIN_BASES]
    for owner in checkout.line_of_descent(scope):
        for bindings in owner.attributes.values():
            kept = [binding for binding in bindings if binding.how != "def"]
            if kept:
                answers.append(holds_tensors(inference, inference.of_bindings(kept, DEPTH // 2), depth - 1))
    return any_of(answers)
