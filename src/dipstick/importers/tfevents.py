"""TensorBoard event files (``events.out.tfevents.…``): what the training logged, with the wall time of logging.

A tag is one event, so a step is some dozens of them, microseconds apart. The time is that of logging: the end of the
step. A restarted run writes a new file, with steps that overlap: each file is read on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.errors import ImportFormatError
from dipstick.importers.base import HEAD_BYTES
from dipstick.importers.binding import Binding
from dipstick.importers.mend import Mender
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

BATCH: Final = 4096
LONG: Final = 20
LONGEST_NS: Final = 60 * SECOND_NS
"""A row that comes a minute and twenty usual distances after the last one is said: a suspended machine, or a stall."""

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
    """Events of one step and moment become one row; times that go back are mended a batch at a time."""

    sink: Sink
    tags: set[str] = field(default_factory=set)
    _others: set[str] = field(default_factory=set)
    _events: int = 0
    _open: _Open | None = None
    _done: list[_Open] = field(default_factory=list)
    _first_ns: int | None = None
    _last_ns: int | None = None
    _before: _Open | None = None
    _mended_ns: int = 0
    _gaps: list[int] = field(default_factory=list)
    _training: TrainingRows = field(init=False)
    _mender: Mender = field(init=False)

    def __post_init__(self) -> None:
        self._training = TrainingRows(self.sink, file=self.sink.file)
        self._mender = Mender(self.sink)

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
        self.tags.update(list(scalars.keys() - self.tags)[: MOST_TAGS - len(self.tags)])
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
            self._done.append(last)
        self._open = _Open(t_ns, step, values, t_ns)
        if len(self._done) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        """Rows with times that go on, to the training's rows."""
        rows, self._done = self._done, []
        raw = np.array([row.t_ns for row in rows], dtype=np.int64)
        times = self._mender.mend(raw, np.zeros(len(rows), dtype=np.int64))
        for row, time in zip(rows, times.tolist(), strict=True):
            self._look(row, time)
            self._training.add(LogRow(time, row.step, row.values))

    def _look(self, row: _Open, time: int) -> None:
        """Say where much time passed between two rows."""
        gap = time - self._mended_ns
        if self._before is not None and self._gaps and gap > LONGEST_NS:
            usual = float(np.median(self._gaps))
            if gap > LONG * usual:
                self.sink.note(
                    "warning",
                    f"{self.sink.file}: {gap / SECOND_NS:,.0f} s pass between step {self._before.step} and {row.step} "
                    f"(usually {usual / SECOND_NS:.1f} s): the machine was suspended, or the training stood still",
                )
        if self._before is not None and len(self._gaps) < BATCH and gap > 0:
            self._gaps.append(gap)
        self._before, self._mended_ns = row, time

    def close(self) -> None:
        """Write what is left, and the facts."""
        self._done += [self._open] if self._open is not None else []
        self._flush()
        self._training.close()
        self.sink.bind(Binding("wall_time", "time", "Unix time in s"))
        wall = [None if t is None else t / SECOND_NS for t in (self._first_ns, self._last_ns)]
        self.sink.fact(
            events=self._events, tags=len(self.tags | self._others), wall_first_s=wall[0], wall_last_s=wall[1]
        )
