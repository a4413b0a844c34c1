"""TensorBoard event files (``events.out.tfevents.…``): what the training logged, with the wall time of logging.

A tag is one event, so a step is some dozens of them, microseconds apart. The time is that of logging: the end of the
step. A restarted run writes a new file, with steps that overlap: each file is read on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.base import HEAD_BYTES
from dipstick.importers.binding import Binding
from dipstick.importers.log_clock import LogClock
from dipstick.importers.protowire import WireError
from dipstick.importers.tf_scalars import VERSION, Event, event
from dipstick.importers.tfrecord import Records, is_head
from dipstick.importers.training_rows import LogRow, TrainingRows

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "tfevents"
NAME: Final = "TensorBoard event file"

SECOND_NS: Final = 1_000_000_000
APART_NS: Final = SECOND_NS
"""Events of one step this close are one row of the log."""

MOST_TAGS: Final = 4096


def sniff(head: Head) -> float:
    """The head of a record, and the version in the first one."""
    if head.is_dir or not is_head(head.raw[:12]):
        return 0.0
    if VERSION.encode() in head.raw[:256]:
        return 0.99
    return 0.6 if "tfevents" in head.path.name and len(head.raw) < HEAD_BYTES else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:  # noqa: ARG001 - nothing is left for the user to say
    """Read every event that is whole.

    Raises:
        ImportFormatError: No event of it holds a number.
    """
    rows = _Rows(sink)
    with path.open("rb") as stream:
        records = Records(stream, sink.progress)
        for record in records:
            try:
                rows.take(event(record))
            except WireError:
                sink.drop("event that can't be decoded", 1)
    for why, many in records.lost.items():
        sink.drop(why, many)
    if not rows.tags:
        raise ImportFormatError(
            "no event of it holds a number.", where=str(path),
            fix="Texts, pictures and histograms explain nothing; the scalars may be in another file of the folder.",
        )  # fmt: skip
    rows.close()


@dataclass(slots=True)
class _Open:
    """A row of the log that may grow."""

    t_ns: int
    step: int
    values: dict[str, float]
    last_ns: int


@dataclass(slots=True)
class _Rows:
    """Events of one step and moment become one row."""

    sink: Sink
    tags: set[str] = field(default_factory=set)
    _others: set[str] = field(default_factory=set)
    _events: int = 0
    _open: _Open | None = None
    _first_ns: int | None = None
    _last_ns: int | None = None
    _training: TrainingRows = field(init=False)
    _clock: LogClock = field(init=False)

    def __post_init__(self) -> None:
        self._training = TrainingRows(self.sink, file=self.sink.file)
        self._clock = LogClock(self.sink)

    def take(self, found: Event) -> None:
        """One event."""
        self._events += 1
        if found.scalars or found.others:
            self._first_ns = found.t_ns if self._first_ns is None else self._first_ns
            self._last_ns = found.t_ns or self._last_ns
        self._others.update(found.others[: MOST_TAGS - len(self._others)])
        self.sink.drop("value that is no finite number (text, picture, histogram, NaN)", len(found.others))
        if not found.scalars:
            return
        self.sink.saw(1)
        if found.t_ns is None:
            self.sink.drop("event without a time", 1)
            return
        self._join(found.t_ns, found.step, self._few(found.scalars))

    def _few(self, scalars: dict[str, float]) -> dict[str, float]:
        """Known tags, and new ones while there are not too many."""
        self.tags.update([tag for tag in scalars if tag not in self.tags][: MOST_TAGS - len(self.tags)])
        kept = {tag: value for tag, value in scalars.items() if tag in self.tags}
        self.sink.drop(f"value under more than {MOST_TAGS:,} tags", len(scalars) - len(kept))
        return kept

    def _join(self, t_ns: int, step: int, values: dict[str, float]) -> None:
        last = self._open
        near = last is not None and step == last.step and abs(t_ns - last.last_ns) < APART_NS
        if last is not None and near and not last.values.keys() & values.keys():
            last.values.update(values)
            last.last_ns = t_ns
            return
        if last is not None:
            self._write(last)
        self._open = _Open(t_ns, step, values, t_ns)

    def _write(self, row: _Open) -> None:
        """A whole row, at a time that goes on."""
        time = self._clock.mend(row.t_ns, row.step)
        self._training.add(LogRow(time, row.step, row.values))

    def close(self) -> None:
        """Write what is left, and the facts."""
        if self._open is not None:
            self._write(self._open)
        self._training.close()
        self.sink.bind(Binding("wall_time", "time", "Unix time in s"))
        wall = [None if t is None else t / SECOND_NS for t in (self._first_ns, self._last_ns)]
        self.sink.fact(
            events=self._events, tags=len(self.tags | self._others), wall_first_s=wall[0], wall_last_s=wall[1]
        )
