"""What is said while training: one line a step on stderr, a bar on a terminal, and the history file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tqdm import tqdm
from transformers import TrainerCallback

from crystal_rl import journal

if TYPE_CHECKING:
    from pathlib import Path

# Logged name, title, layout.
_SHOWN = (
    ("reward", "reward", "{:.3f}"),
    ("crystal/valid", "valid", "{:.0%}"),
    ("crystal/ok", "relaxed", "{:.0%}"),
    ("crystal/lost", "lost", "{:.0%}"),
    ("step_time", "step", "{:.1f} s"),
)


def line_of(logs: dict[str, Any]) -> str:
    """``reward 0.312  valid 94%  relaxed 62%  step 9.1 s``; what is not there or zero loss is left out."""
    parts = [
        f"{title} {layout.format(logs[name])}"
        for name, title, layout in _SHOWN
        if isinstance(logs.get(name), int | float) and not (name == "crystal/lost" and not logs[name])
    ]
    return "  ".join(parts)


class Progress(TrainerCallback):  # type: ignore[misc] # transformers is untyped, or absent
    """On rank 0: shows each step, and appends what was logged to the history."""

    def __init__(self, history: Path, *, is_quiet: bool) -> None:
        self.history = history
        self.is_quiet = is_quiet
        self.bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Open the bar where someone can see it move."""
        del args, control
        if not self.is_quiet and state.is_world_process_zero and sys.stderr.isatty():
            self.bar = tqdm(total=state.max_steps, initial=state.global_step, unit="step", file=sys.stderr)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: object
    ) -> None:
        """A step is done; the last log of a run, which has no reward, is not a step."""
        del args, control
        if logs is None or not state.is_world_process_zero or "reward" not in logs:
            return
        journal.append(self.history, {"step": state.global_step, **logs})
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)
            self.bar.set_postfix_str(line_of(logs))
        elif not self.is_quiet:
            print(f"step {state.global_step}/{state.max_steps}  {line_of(logs)}", file=sys.stderr, flush=True)  # noqa: T201 - talk

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Leave the bar where it is."""
        del args, state, control
        if self.bar is not None:
            self.bar.close()
