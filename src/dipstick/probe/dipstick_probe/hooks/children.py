"""Children of ``multiprocessing`` end with ``os._exit``: their segment ends in a finalizer instead of ``atexit``.

``multiprocessing.util`` clears its finalizers in every new child and then runs what was registered for after the
fork, so registering there reaches forked, forkserver and (through their own start) spawned children alike.
"""

from __future__ import annotations

from ..state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAST = -100
"""Exit priority: after the user's own finalizers."""


def _finish() -> None:
    STATE.finish()


def _register(util: Any) -> None:
    """Have every child of this process register its own end."""
    util.register_after_fork(_finish, lambda _: util.Finalize(None, _finish, exitpriority=LAST))


TABLE = {"multiprocessing.util": (_register,)}
