"""Console logs of HF Trainer and TRL, and W&B's ``output.log`` of such runs: printed rows glued to progress bars."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding, check_bound
from dipstick.importers.hf_lines import SNIFF, Bar, bar, numbers
from dipstick.importers.rl_text import LONGEST, pieces
from dipstick.importers.step_clock import StepClock
from dipstick.importers.training_rows import LogRow, TrainingRows
from dipstick.importers.verl_log import SNIFF as VERL

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "hf-log"
NAME: Final = "console log of HF Trainer or TRL"

_BATCH: Final = 50_000
DEEP: Final = 8 << 20
MOST_SKIPPED: Final = 1000
"""Steps between two prints of a bar; more is another bar."""
_SPANS: Final = {
    "rank": pl.Int32,
    "t0_ns": pl.Int64,
    "t1_ns": pl.Int64,
    "name": pl.String,
    "step": pl.Int64,
    "origin": pl.String,
}


def sniff(head: Head) -> float:
    """A printed row, near the head or some megabytes into a log; verl's lines are another reader's."""
    if head.is_dir or not head.text:
        return 0.0
    text = head.text
    if not SNIFF.search(text) and head.path.suffix.lower() in {".log", ".txt", ".out", ".err", ""}:
        with head.path.open("rb") as stream:
            text = stream.read(DEEP).decode("utf-8", "replace")
    return 0.7 if SNIFF.search(text) and not VERL.search(text) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:  # noqa: ARG001 - an importer's signature
    """Read every printed row; the training's bar, if there is one, is the clock, in whole seconds.

    Raises:
        ImportFormatError: There is no row, or no number in one is known.
    """
    total = _training_bar(path)
    sink.clock("relative", resolution_ns=10**9 if total else 0)
    log = _Log(sink, total)
    for text in pieces(path, sink):
        log.take(text)
    log.close(str(path))


def _training_bar(path: Path) -> int:
    """Total of the bar that ran longest among those without a description; 0 if there is none."""
    longest: Counter[int] = Counter()
    for text in pieces(path):
        found = bar(text) if "%|" in text else None
        if found is not None and not found.named and (found.total in longest or len(longest) < LONGEST):
            longest[found.total] = max(longest[found.total], found.seconds + 1)
    return max(longest, key=lambda total: (longest[total], total), default=0)


class _Log:
    """Rows and step edges, in the order of the log."""

    def __init__(self, sink: Sink, total: int) -> None:
        self._sink, self._total = sink, total
        self._rows = TrainingRows(sink, exact=False, edges=not total)
        self._clock = StepClock()
        self._at: Bar | None = None
        self._base = self._restarts = self._many = self._skipped = 0
        self._spans: list[tuple[int, int, int, str, int, str]] = []

    def take(self, text: str) -> None:
        """One piece of text."""
        found = bar(text) if self._total and "%|" in text else None
        if found is not None and found.total == self._total and not found.named:
            self._bar(found)
        row = numbers(text)
        if row is None:
            return
        values, bad = row
        self._many += 1
        self._sink.saw(1)
        self._sink.drop("number that is NaN or infinite", bad)
        step = self._at.done if self._at else None
        at = self._clock.at(step, values) if not self._total else self._now(self._at)
        if "train_runtime" in values:
            self._sink.fact(train_runtime_s=values["train_runtime"])
        self._rows.add(LogRow(at, step, values))

    def _now(self, at: Bar | None) -> int | None:
        return None if at is None else (self._base + at.seconds) * 10**9

    def _bar(self, found: Bar) -> None:
        """The steps since the bar was printed last; a bar that begins again is a restart."""
        before, self._at = self._at, found
        if before is None:
            return
        if found.seconds < before.seconds or found.done < before.done:
            self._base += before.seconds
            self._restarts += 1
            return
        many = found.done - before.done
        if not 1 <= many <= MOST_SKIPPED:
            return
        start, end = self._now(before) or 0, self._now(found) or 0
        self._skipped += many if many > 1 else 0
        for k in range(many):
            t0, t1 = start + (end - start) * k // many, start + (end - start) * (k + 1) // many
            self._spans.append((0, t0, t1, "step", before.done + k + 1, "reconstructed"))
        if len(self._spans) >= _BATCH:
            self._write()

    def _write(self) -> None:
        spans, self._spans = self._spans, []
        if spans:
            self._sink.rows("spans", pl.DataFrame(spans, schema=_SPANS, orient="row"))

    def close(self, where: str) -> None:
        """Write what is left and say what its clock is.

        Raises:
            ImportFormatError: There was no row, or no number in one is known.
        """
        if not self._many:
            raise ImportFormatError("it has no row of numbers as HF Trainer prints them.", where=where,
                                    fix="A row is {'loss': 0.1, …, 'epoch': 0.02}; the trainer prints one every logging_steps.")  # fmt: skip
        self._write()
        self._rows.close()
        check_bound(where, self._sink.account.bindings)
        file = self._sink.file
        if self._total:
            self._sink.bind(
                Binding(
                    "(progress bar)",
                    "span step",
                    "s",
                    "likely",
                    f"the bar of {self._total:,} that ran longest",
                )
            )
            self._sink.fact(bar_total=self._total, bar_s=self._base + (self._at.seconds if self._at else 0))
            self._sink.note("warning", f"{file}: its times are the progress bar's, in whole seconds since the training began: step edges are "
                            "reconstructed, and what happens inside a step can't be known; a W&B file of the run has that")  # fmt: skip
        elif not self._clock.is_running:
            self._sink.note(
                "warning", f"{file}: it has neither a progress bar nor step_time: numbers only, no time axis"
            )
        if self._skipped:
            self._sink.note(
                "warning",
                f"{file}: {self._skipped:,} steps passed between two prints of the bar: their seconds are means",
            )
        if self._restarts:
            self._sink.note(
                "warning",
                f"{file}: the bar began again {self._restarts:,} times: the run was restarted; time between is missing",
            )
