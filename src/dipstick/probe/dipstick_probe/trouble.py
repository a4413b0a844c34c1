"""Errors of the probe's own: swallowed, and said once in the segment, so that silence is never mistaken for health."""

from __future__ import annotations

from . import encode
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

MOST = 100
_said: set[str] = set()


def note(where: str, error: BaseException) -> None:
    """Write a ``hooks`` row for the first error at a place: the error's type and our line, never its message.

    Args:
        where: The hook: ``pools.offer``.
        error: What was caught.
    """
    try:
        if where in _said or len(_said) >= MOST:
            return
        _said.add(where)
        why = f"{type(error).__name__} in the probe at {_innermost(error.__traceback__)}"
        STATE.put((encode.line, "hooks", {"hooks": [{"target": where, "bound": False, "why": why}]}))
    except Exception:  # noqa: S110 - there is nobody left to tell
        pass


def _innermost(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
