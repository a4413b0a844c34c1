"""prime-rl: it has no timers, but every monitor gets one row of numbers a step, durations among them.

The numbers become scalars; ``time/step`` gives the step's span, ending now. The other durations have no times
of their own: the importer lays them out. Fixture only: prime-rl is installed from git and needs CUDA.
"""

from __future__ import annotations

import functools
import time

from .. import spans, timers, trouble
from ..patch import Target
from ..state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST = 256
NS = 1_000_000_000


def _log(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Monitor.log(metrics, step)``."""

    @functools.wraps(original)
    def log(self: Any, metrics: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
        if STATE.on:
            try:
                _note(metrics, step)
            except Exception as error:  # fail open
                trouble.note("prime_rl.log", error)
        return original(self, metrics, step, *args, **kwargs)

    return log


def _note(metrics: Any, step: Any) -> None:
    if type(metrics) is not dict or type(step) is not int:
        return
    now = time.monotonic_ns()
    for name, value in list(metrics.items())[:MOST]:
        if type(value) in (int, float):
            spans.scalar(str(name), value, step=step, at_ns=now)
    seconds = metrics.get("time/step")
    if isinstance(seconds, (int, float)) and seconds > 0:
        STATE.step = step
        STATE.add_role("trainer")
        timers.emit("step", None, now - int(seconds * NS), now, None, None, {"from": "time/step"})


TABLE = {
    "prime_rl.utils.monitor.file": (Target("FileMonitor.log", _log, ("metrics", "step")),),
}
