"""Do the workers wait for each other? Synchronization primitives in code that runs inside them."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_loop import collective
from dipstick.verdicts.repo_resolve import last_name

if TYPE_CHECKING:
    from dipstick.verdicts.repo_context import Context
    from dipstick.verdicts.repo_scope import Scope

PRIMITIVES: Final[dict[str, str]] = {
    "Barrier": "barrier", "Condition": "barrier", "Event": "event", "Lock": "lock", "RLock": "lock",
    "Semaphore": "lock", "BoundedSemaphore": "lock", "FileLock": "lock", "Queue": "queue", "JoinableQueue": "queue",
    "SimpleQueue": "queue",
}  # fmt: skip
"""Class and what it does to workers: a ``barrier`` makes them wait for each other, an ``event`` for a signal, a
``lock`` lets one in at a time, a ``queue`` hands work over."""
METHODS: Final[dict[str, frozenset[str]]] = {
    "barrier": frozenset({"wait", "wait_for"}),
    "event": frozenset({"wait"}),
    "lock": frozenset({"acquire"}),
    "queue": frozenset({"get", "put"}),
}
BY_NAME: Final = (
    ("barrier", re.compile(r"barrier|condition", re.IGNORECASE)),
    ("event", re.compile(r"event", re.IGNORECASE)),
    ("lock", re.compile(r"(^|_)(r?lock|mutex|semaphore|sem)$", re.IGNORECASE)),
    ("queue", re.compile(r"queue|(^|_)q$", re.IGNORECASE)),
)


def find_worker_sync(context: Context) -> None:
    """Add the primitives that are used in functions that run in worker processes."""
    for scope in sorted(context.follow.reach(context.workers), key=lambda s: (s.module.file, s.name)):
        for call in scope.calls:
            found = collective(context, call, scope)
            if found is not None:
                _add(context, call, scope, f"collective: {found[0]}", resolved=found[1])
            elif isinstance(call.func, ast.Attribute):
                _method(context, call, call.func, scope)
        for value in scope.withs:
            kind, resolved = _kind(context, value, scope)
            if kind == "lock":
                _add(context, value, scope, f"lock: with {last_name(value)}", resolved=resolved)


def _method(context: Context, call: ast.Call, func: ast.Attribute, scope: Scope) -> None:
    """``barrier.wait()``, ``lock.acquire()``, ``queue.get()``."""
    if not any(func.attr in names for names in METHODS.values()):
        return
    kind, resolved = _kind(context, func.value, scope)
    if kind is not None and func.attr in METHODS[kind]:
        _add(context, call, scope, f"{kind}: {last_name(func.value)}.{func.attr}", resolved=resolved)


def _kind(context: Context, node: ast.expr, scope: Scope) -> tuple[str | None, bool]:
    """``barrier``, ``event``, ``lock`` or ``queue``, and whether its type was followed; threads' primitives are none.

    A ``threading.Lock`` inside a worker process binds the threads of that worker only.
    """
    name = context.inference.infer(node, scope).name
    package, _, last = name.rpartition(".")
    if package in {"threading", "asyncio", "queue"}:
        return None, True
    if last in PRIMITIVES and package:
        return PRIMITIVES[last], True
    words = last_name(node)
    return next((kind for kind, pattern in BY_NAME if words and pattern.search(words)), None), False


def _add(context: Context, node: ast.expr, scope: Scope, detail: str, *, resolved: bool) -> None:
    """One finding."""
    finding = context.at(node, scope, "worker_sync", sure="resolved" if resolved else "by name")
    context.add(replace(finding, target=detail.partition(": ")[2], detail=detail.partition(": ")[0]))
