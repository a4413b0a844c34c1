"""torch: what is saved, when the allocator's cache is cleared, and how to know that a call is being compiled.

Saving and clearing ran for real on a CPU; the allocator's numbers need CUDA.
"""

from __future__ import annotations

import sys

from ..patch import Target
from ..state import STATE
from ..wrappers import Spec, timed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..spans import Span


def _compiler(module: Any) -> None:
    """From now on wrappers can ask whether they are being traced."""
    is_compiling = getattr(module, "is_compiling", None)
    if callable(is_compiling):
        STATE.compiling = is_compiling


def _reserved() -> int | None:
    """Bytes the caching allocator holds, None without a CUDA context."""
    torch = sys.modules["torch"]
    return int(torch.cuda.memory_reserved()) if torch.cuda.is_initialized() else None


def _before(span: Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None) -> None:
    del args, kwargs, result
    reserved = _reserved()
    if reserved is not None:
        span.add(reserved_before_b=reserved)


def _after(span: Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None) -> None:
    del args, kwargs, result
    reserved = _reserved()
    if reserved is not None:
        span.add(reserved_after_b=reserved)


TABLE: dict[str, tuple[Any, ...]] = {
    "torch.compiler": (_compiler,),
    "torch.serialization": (Target("save", timed(Spec("torch.save", "checkpoint", event="save"))),),
    "torch.cuda.memory": (
        Target(
            "empty_cache",
            timed(Spec("empty_cache", "cache_clear", event="cache_clear", before=_before, after=_after)),
        ),
    ),
    "safetensors.torch": (
        Target("save_file", timed(Spec("safetensors.save_file", "checkpoint", event="save"))),
    ),
}
