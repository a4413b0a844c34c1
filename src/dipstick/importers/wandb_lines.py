"""``wandb-events.jsonl`` (system metrics) and ``wandb-history.jsonl`` (metrics): one JSON object a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding
from dipstick.importers.chunks import chunks
from dipstick.importers.text import json_object
from dipstick.importers.training_rows import TrainingRows
from dipstick.importers.wandb_history import LONGEST_S, log_row
from dipstick.importers.wandb_system import Run, SystemRows, number_of, stamp_ns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "wandb-jsonl"
NAME: Final = "W&B events or history (JSON lines)"

PIECE: Final = 4 << 20
FILES: Final = ("wandb-events.jsonl", "wandb-history.jsonl")
_MARKS: Final = ("_timestamp", "_runtime", "_step")


def sniff(head: Head) -> float:
    """W&B's own columns in the first object."""
    text = head.text.lstrip()
    if not text.startswith("{") or not head.lines:
        return 0.0
    first = json_object(head.lines[0]) or {}
    marks = sum(mark in first for mark in _MARKS)
    system = any(key.startswith("system.") for key in first)
    return 0.9 if marks > 1 or (marks and system) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read every line that is an object.

    Raises:
        ImportFormatError: No line of it is one.
    """
    read_run(path, options, sink, Run())


def read_run(path: Path, options: Options, sink: Sink, run: Run) -> None:
    """The same, with what is known of the run from elsewhere.

    Raises:
        ImportFormatError: No line of it is an object.
    """
    rows = _Rows(options, sink, run)
    for line in _lines(path, sink):
        rows.take(line)
    if not rows.many:
        raise ImportFormatError("no line of it is a JSON object.", where=str(path))
    rows.close()


def _lines(path: Path, sink: Sink) -> Iterator[dict[str, Any]]:
    """Objects; what is none is counted."""
    for data, done in chunks(
        path, size=PIECE, damage=lambda why: sink.note("warning", f"{sink.file}: {why}")
    ):
        for line in data.split(b"\n"):
            if not line.strip():
                continue
            sink.saw(1)
            found = json_object(line)
            if found is None:
                sink.drop("line that is no JSON object", 1)
            else:
                yield found
        sink.progress(done)


class _Rows:
    """System metrics and training metrics, by their keys."""

    def __init__(self, options: Options, sink: Sink, run: Run) -> None:
        self._options, self._sink, self._run = options, sink, run
        self._system: SystemRows | None = None
        self._training = TrainingRows(sink, file=sink.file)
        self.many = 0

    def take(self, row: dict[str, Any]) -> None:
        """One object."""
        self.many += 1
        system = {
            k: v for k, item in row.items() if k.startswith("system.") and (v := number_of(item)) is not None
        }
        if not system:
            self._history(row)
            return
        stamp = number_of(row.get("_timestamp"))
        t_ns = stamp_ns(stamp)
        if t_ns is None:
            self._sink.drop("system metrics without a time", 1)
            return
        self._note_start(t_ns, row)
        if self._system is None:
            whole = stamp is not None and stamp.is_integer()
            self._sink.clock("unix", resolution_ns=10**9 if whole else 0)
            self._system = SystemRows(self._sink, self._options, self._run, whole_seconds=whole)
        self._system.add(t_ns, system)

    def _history(self, row: dict[str, Any]) -> None:
        found = log_row(row, self._run.start_ns)
        if found is None:
            self._sink.drop("row without a number", 1)
        else:
            self._training.add(found)

    def _note_start(self, t_ns: int, row: dict[str, Any]) -> None:
        runtime = number_of(row.get("_runtime"))
        if self._run.start_ns is None and runtime is not None and 0 <= runtime < LONGEST_S:
            self._run.start_ns = t_ns - round(runtime * 1e6) * 1000

    def close(self) -> None:
        """Write what is left, and the facts."""
        if self._system is not None:
            self._system.close()
        self._training.close()
        self._sink.bind(Binding("_timestamp", "time", "Unix time in s"))
        start = self._run.start_ns
        self._sink.fact(run_start_s=None if start is None else start / 1e9)
