"""Rows of ``wandb.log``: which key is the time, which the step, and what is a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.importers.training_rows import LogRow
from dipstick.importers.wandb_system import number_of, stamp_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

STEPS: Final = ("train/global_step", "trainer/global_step", "training/global_step", "global_step", "_step")
"""The training's own step before W&B's, which also counts what is logged within a step (TRL's timers)."""

OWN: Final = frozenset({"_step", "_runtime", "_timestamp", "_absolute_runtime", "_wandb", "_wandb.runtime"})
"""What W&B adds to every row."""

LONGEST_S: Final = 1e9
"""No run goes on for 30 years."""

MOST_KEYS: Final = 4096
"""Numbers of one row; more are cut off."""


def log_row(items: Mapping[str, object], start_ns: int | None = None) -> LogRow | None:
    """One row; None: no number in it.

    Args:
        items: Values by key, as JSON text or as JSON values; media, lists and objects are left out.
        start_ns: Start of the run, where a row has only the time since then.
    """
    numbers = {key: value for key, item in items.items() if (value := number_of(item)) is not None}
    t_ns, runtime = stamp_ns(numbers.get("_timestamp")), numbers.get("_runtime")
    if t_ns is None and start_ns is not None and runtime is not None and 0 <= runtime < LONGEST_S:
        t_ns = start_ns + round(runtime * 1e6) * 1000
    step = next((numbers[key] for key in STEPS if key in numbers), None)
    values = {key: value for key, value in list(numbers.items())[:MOST_KEYS] if key not in OWN}
    if not values:
        return None
    whole = int(step) if step is not None and step.is_integer() and abs(step) < 2**62 else None
    return LogRow(t_ns, whole, values)
