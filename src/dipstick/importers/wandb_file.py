"""W&B's own run file, ``wandb/run-<date>-<id>/run-<id>.wandb``: telemetry, metrics and console lines on one clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding
from dipstick.importers.protowire import Message, WireError
from dipstick.importers.training_rows import TrainingRows
from dipstick.importers.wandb_history import log_row
from dipstick.importers.wandb_log import MAGIC, Log
from dipstick.importers.wandb_meta import from_environment
from dipstick.importers.wandb_system import Run, SystemRows, number_of

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "wandb"
NAME: Final = "W&B run file (.wandb)"

# field numbers of wandb_internal.proto
_HISTORY, _STATS, _OUTPUT, _RUN, _EXIT, _HEADER, _ENVIRONMENT = 2, 7, 13, 17, 18, 21, 26
_READ: Final = (_HISTORY, _STATS, _OUTPUT, _RUN, _EXIT, _HEADER, _ENVIRONMENT)
_KEY, _NESTED, _VALUE = 1, 2, 16


def sniff(head: Head) -> float:
    """Its magic; an empty file of that name is one too (a run that was killed at once)."""
    return 0.99 if head.raw.startswith(MAGIC) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read every record that is whole.

    Raises:
        ImportFormatError: No record of it can be read.
    """
    read_run(path, options, sink, Run())


def read_run(path: Path, options: Options, sink: Sink, run: Run) -> None:
    """The same, with what is known of the run from elsewhere.

    Raises:
        ImportFormatError: No record of it can be read.
    """
    with path.open("rb") as stream:
        log = Log(stream, sink.progress)
        reader = _Reader(options, sink, run)
        for record in log:
            reader.take(record)
    for why, many in log.lost.items():
        sink.drop(why, many)
    if not reader.records:
        lost = ", ".join(f"{many} {why}" for why, many in log.lost.items()) or "it is empty"
        raise ImportFormatError(
            f"no record of it can be read: {lost}.", where=str(path),
            fix="Of a run that was killed at once nothing was written; files/output.log beside it may hold more.",
        )  # fmt: skip
    reader.close()


class _Reader:
    """Sorts records by kind."""

    def __init__(self, options: Options, sink: Sink, run: Run) -> None:
        self._sink, self._run = sink, run
        self._system = SystemRows(sink, options, run)
        self._training = TrainingRows(sink, file=sink.file)
        self._many = {"history": 0, "stats": 0, "console": 0}
        self.records = 0

    def take(self, data: bytes) -> None:
        """One record; what can't be decoded is counted."""
        self.records += 1
        try:
            record = Message(data)
            kind = next((kind for kind in _READ if kind in record), 0)
            inner = record.message(kind)
            if inner is not None:
                self._take(kind, inner)
        except WireError:
            self._sink.drop("record that can't be decoded", 1)

    def _take(self, kind: int, inner: Message) -> None:
        if kind == _HISTORY:
            self._history(inner)
        elif kind == _STATS:
            self._stats(inner)
        elif kind == _OUTPUT:
            self._many["console"] += 1
        elif kind == _RUN:
            self._run_record(inner)
        elif kind == _EXIT:
            self._sink.fact(exit_code=inner.integer(1) or 0, runtime_s=inner.integer(2))
        elif kind == _HEADER and (version := inner.message(1)) is not None:
            self._run.is_version(version.text(1))
        elif kind == _ENVIRONMENT:
            from_environment(inner, self._run)

    def _history(self, inner: Message) -> None:
        self._many["history"] += 1
        self._sink.saw(1)
        items = [Message(blob) for blob in inner.blobs(1)]
        row = log_row({_key(item): item.text(_VALUE) for item in items}, self._run.start_ns)
        if row is None:
            self._sink.drop("history row without a number", 1)
        else:
            self._training.add(row)

    def _stats(self, inner: Message) -> None:
        self._many["stats"] += 1
        self._sink.saw(1)
        t_ns = inner.time_ns(2)
        if t_ns is None:
            self._sink.drop("system metrics without a time", 1)
            return
        items = [Message(blob) for blob in inner.blobs(3)]
        values = {item.text(_KEY): number_of(item.text(_VALUE)) for item in items}
        self._system.add(t_ns, {key: value for key, value in values.items() if value is not None})

    def _run_record(self, inner: Message) -> None:
        """Start and version; the run record comes again when something in it changes."""
        self._run.start_ns = self._run.start_ns or inner.time_ns(17)
        telemetry = inner.message(19)
        if telemetry is not None:
            self._run.is_version(telemetry.text(5))

    def close(self) -> None:
        """Write what is left, and the facts."""
        self._system.close()
        self._training.close()
        self._sink.bind(Binding("timestamp", "time", "Unix time in s"))
        start, version = self._run.start_ns, self._run.version
        self._sink.fact(
            records=self.records, wandb_version=".".join(map(str, version)) or None,
            run_start_s=None if start is None else start / 1e9, **{f"{k}_records": n for k, n in self._many.items()},
        )  # fmt: skip
        if "exit_code" not in self._sink.account.facts:
            self._sink.note("warning", f"{self._sink.file}: no exit record: the run was killed, or still went on; "
                            "its last rows are missing")  # fmt: skip


def _key(item: Message) -> str:
    """``loss``, or the parts of a nested key joined by dots."""
    return item.text(_KEY) or ".".join(blob.decode("utf-8", "replace") for blob in item.blobs(_NESTED))
