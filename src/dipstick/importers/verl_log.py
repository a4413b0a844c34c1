"""verl's console log: ``step:12 - key:value - …`` lines among everything that a Ray job prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.rl_text import looks_like, number, read_lines
from dipstick.importers.step_clock import SAYS, StepClock
from dipstick.importers.training_rows import LogRow, TrainingRows

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "verl-log"
NAME: Final = "verl console log (step:N - key:value - …)"

_STEP: Final = re.compile(r"(?:^|\s)step:(\d{1,15}) - (?=\S+:)")
SNIFF: Final = re.compile(r"(?m)(?:^|\s)step:\d{1,15} - [\w/@.-]+:[-\w]")
_BAR: Final = re.compile(r"Training Progress:.*\| *(\d{1,9})/\d{1,9} \[(?:(\d{1,5}):)?(\d{1,5}):(\d\d)<")


@dataclass(frozen=True, slots=True)
class _Row:
    step: int
    values: dict[str, float]


def sniff(head: Head) -> float:
    """A step line at the head, or further into a log."""
    return 0.9 if not head.is_dir and looks_like(head.path, head.text, SNIFF) else 0.0


def parse_row(text: str) -> tuple[int, dict[str, float], int] | None:
    """Step, numbers, and how many values are none (text, or cut by another worker's output); None: no step line.

    Example:
        ``step:3 - critic/kl:-0.1 - timing_s/gen:np.float64(4.5) - a:nan`` gives 3, two numbers, 1.
    """
    match = _STEP.search(text)
    if match is None:
        return None
    cells = text[match.end() :].split(" - ")
    pairs = [
        (key.strip(), number(value))
        for key, colon, value in (cell.rpartition(":") for cell in cells)
        if colon
    ]
    values = {key: value for key, value in pairs if value is not None and key and " " not in key}
    return int(match[1]), values, len(cells) - len(values)


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read every step line; the clock is the sum of the steps, corrected by the progress bar.

    Raises:
        ImportFormatError: There is no step line.
    """
    sink.clock("relative")
    log, bar = _Log(sink), _Bar()
    held: _Row | None = None
    lost = 0
    for line in read_lines(path, sink, options.tz):
        parsed = parse_row(line.text) if "step:" in line.text else None
        if parsed is not None:
            if held is not None:
                log.add(held)
            held, lost = _Row(parsed[0], parsed[1]), lost + parsed[2]
        elif held is not None and "Training Progress" in line.text:
            at = bar.read(line.text, held.step, log.clock.ns)
            if at is not None:
                log.add(held, floor_ns=at)
                held = None
    if held is not None:
        log.add(held)
    if not sink.account.rows_read:
        raise ImportFormatError("no step line (step:N - key:value) is in it.", where=str(path),
                                fix="verl prints them with trainer.logger=['console'].")  # fmt: skip
    log.rows.close()
    sink.note("warning", f"{sink.file}: {SAYS}")
    if lost:
        sink.note("info", f"{sink.file}: {lost:,} values of step lines are no finite numbers: missing")


class _Log:
    """Rows on the clock of their steps' seconds."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.rows, self.clock = TrainingRows(sink), StepClock(runs=True)

    def add(self, row: _Row, *, floor_ns: int = 0) -> None:
        self._sink.saw(1)
        self.rows.add(LogRow(self.clock.at(row.step, row.values, floor_ns=floor_ns), row.step, row.values))


class _Bar:
    """The progress bar's elapsed time; a bar that starts again goes on where the log was."""

    def __init__(self) -> None:
        self._base_ns = self._last_s = 0

    def read(self, text: str, step: int, end_ns: int) -> int | None:
        """When that step had ended at the earliest; None if the bar is not there yet."""
        match = _BAR.search(text)
        if match is None:
            return None
        shown, hours, minutes, seconds = (int(group or 0) for group in match.groups())
        elapsed = (hours * 60 + minutes) * 60 + seconds
        if elapsed < self._last_s:
            self._base_ns = end_ns
        self._last_s = elapsed
        return self._base_ns + elapsed * 10**9 if shown >= step else None
