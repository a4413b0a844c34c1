"""Hugging Face ``Trainer``: steps, saving, evaluation, logged numbers.

Steps come from ``CallbackHandler``, which every Trainer calls whatever its loop looks like: the methods are wrapped,
no callback is added. Ran for real with 5.17 (tests/live_trl.py); 4.x by signature.
"""

from __future__ import annotations

import functools
import sys
import time

from .. import spans, steps, trouble
from ..patch import Target
from ..state import STATE
from ..wrappers import Spec, timed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST_SCALARS = 128


def _on_step(action: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A maker for ``CallbackHandler.on_step_*(self, args, state, control, ...)``."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def on_step(self: Any, args: Any, state: Any, *rest: Any, **more: Any) -> Any:
            result = original(self, args, state, *rest, **more)
            if STATE.on:
                try:
                    action(state)
                except Exception as error:  # fail open
                    trouble.note("transformers.step", error)
            return result

        return on_step

    return make


def _begin(state: Any) -> None:
    file, line = spans.caller(sys._getframe(2), ("trainer_callback.py",))  # cheap
    steps.begin(int(state.global_step), file, line)


def _end(state: Any) -> None:
    del state
    steps.end()


def _logged(span: spans.Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None) -> None:
    """``Trainer.log(self, logs)``: its numbers become scalars of the step."""
    del span, result
    logs = args[1] if len(args) > 1 else kwargs.get("logs")
    if not isinstance(logs, dict):
        return
    step, now = int(args[0].state.global_step), time.monotonic_ns()
    for name, value in list(logs.items())[:MOST_SCALARS]:
        if type(value) in (int, float):
            spans.scalar(str(name), value, step=step, at_ns=now)


SKIP = ("trl/extras/profiling.py",)
TABLE = {
    "transformers.trainer_callback": (
        Target("CallbackHandler.on_step_begin", _on_step(_begin), ("args", "state", "control")),
        Target("CallbackHandler.on_step_end", _on_step(_end), ("args", "state", "control")),
    ),
    "transformers.trainer": (
        Target("Trainer.training_step", timed(Spec("training_step"))),
        Target("Trainer.compute_loss", timed(Spec("compute_loss", "forward", skip=SKIP))),
        Target("Trainer._save_checkpoint", timed(Spec("_save_checkpoint", "checkpoint", event="checkpoint"))),
        Target("Trainer.evaluate", timed(Spec("evaluate", "eval", event="eval"))),
        Target("Trainer.log", timed(Spec("log", "other", before=_logged, always=True)), ("logs",)),
    ),
}
forget = steps.forget
