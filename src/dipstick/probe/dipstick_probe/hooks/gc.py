"""Garbage collections that can be felt: events of full ones, and of any that took 10 ms."""

from __future__ import annotations

import gc
import time

from .. import spans
from ..state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FULL = 2
LONG_NS = 10_000_000

_began = 0


def install() -> None:
    """Listen to the collector."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def uninstall() -> None:
    """Stop listening."""
    if _on_collection in gc.callbacks:
        gc.callbacks.remove(_on_collection)


def _on_collection(phase: str, info: dict[str, Any]) -> None:
    """Called by the collector, with the world stopped in the middle of anything: one append, no lock, no thread."""
    global _began  # collections do not nest
    now = time.monotonic_ns()
    if phase == "start":
        _began = now
        return
    if STATE.on and (info["generation"] == FULL or now - _began >= LONG_NS):
        spans.event(
            "gc", _began, now, f"generation {info['generation']}, {info['collected']} collected", quietly=True
        )
