"""A report and its recording without anybody's names: what is written for sharing is made from these two.

Renderers get the redacted pair, so none of them can forget it. The mapping is :class:`dipstick.show.names.Names`.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import polars as pl

from dipstick.model import Dip, Note
from dipstick.recording.schema import TABLES
from dipstick.show.names import Names
from dipstick.show.receipts import SAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dipstick.model import Report
    from dipstick.recording.reader import Recording
    from dipstick.show.recorded import Recorded

NOTE: Final = "host names, user names, paths and command lines are replaced in this file, also in the commands: --no-redact keeps them"
_TEXTS: Final = ("detail", "name", "job", "types", "payload_types", "from", "to", "parent")
"""Free text in which a user's home may be named."""
_TEXT_TYPES: Final = (pl.String, pl.Categorical)
_HOST_FIELDS: Final = frozenset({"host", "gpus"})
_FILE_FIELDS: Final = frozenset({"file"})


def redact(report: Report, recording: Recorded | None) -> tuple[Report, Recorded | None]:
    """The same finding and recording with every name replaced, in both by the same word.

    Args:
        report: The finding.
        recording: What it was found in; None where only the report is to be shown.
    """
    names = names_of(report, recording)
    hidden: Report = _hide(report, names, "")
    run = hidden.run if report.run.name.startswith(SAMPLE) else replace(hidden.run, name="run")
    run = replace(run, name=report.run.name) if report.run.name.startswith(SAMPLE) else run
    hidden = replace(hidden, run=run, notes=(*hidden.notes, Note("info", f"{NOTE}.")))
    return hidden, None if recording is None else Redacted(recording, names)


def without_names(recording: Recording) -> Recording:
    """A recording that can be analysed and holds no names."""
    return cast("Recording", Redacted(recording, names_of(None, recording)))


def names_of(report: Report | None, recording: Recorded | None) -> Names:
    """Everything that has to be replaced."""
    hosts, files = (set[str](), set[str]()) if report is None else (_hosts(report), set(_files(report)))
    if recording is None:
        return Names(hosts, files, (), _strings(report))
    for table, schema in TABLES.items():
        hosts |= set(_values(recording, table, "host")) if "host" in schema else set()
        files |= set(_values(recording, table, "file")) if "file" in schema else set()
    texts = [
        t
        for table in TABLES
        for column in _TEXTS
        if column in TABLES[table]
        for t in _pathlike(recording, table, column)
    ]
    return Names(hosts, files, _values(recording, "processes", "cmdline"), (*texts, *_strings(report)))


def _hosts(report: Report) -> set[str]:
    named = {g.host for g in report.states_all} | {t.host for t in report.tracks.gpus}
    return named | {name.rpartition(":")[0] for name in report.run.unused_gpus}


def _values(recording: Recorded, table: str, column: str) -> list[str]:
    """Distinct texts of a column, as stored: what cleaning would drop can still stand in a message."""
    frame = recording.scan(table).select(pl.col(column).unique()).collect()
    found: list[str] = frame[column].cast(pl.String).drop_nulls().unique().sort().to_list()
    return found


def _pathlike(recording: Recorded, table: str, column: str) -> list[str]:
    """Distinct texts that hold a slash: few, where most are numbers."""
    return [text for text in _values(recording, table, column) if "/" in text or "\\" in text]


def _files(report: Report) -> Iterator[str]:
    judged = [*(check.receipts for check in report.checks), *(claim.receipts for claim in report.claims)]
    yield from (receipt.file for receipts in judged for receipt in receipts if receipt.file)


_NAMELESS: Final = frozenset({"dips", "job_dips", "tracks", "states", "states_all"})
"""Long parts of a report whose only names are hosts."""


def _strings(value: Any) -> Iterator[str]:
    """Every string in a report in which a path may stand."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings((*value.keys(), *value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            if not isinstance(item, int | float):
                yield from _strings(item)
    elif is_dataclass(value):
        yield from (
            text
            for name in _fields(type(value))
            if name not in _NAMELESS
            for text in _strings(getattr(value, name))
        )


_KNOWN: Final[dict[type, tuple[str, ...]]] = {}


def _fields(kind: type) -> tuple[str, ...]:
    """Names of a dataclass's fields, looked up once; none of anything else."""
    if kind not in _KNOWN:
        _KNOWN[kind] = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
    return _KNOWN[kind]


def _hide(value: Any, names: Names, field: str) -> Any:
    """The same value with every string in it replaced; what a string means follows from the field it is in.

    Where nothing changes, the value itself: a day's report has a hundred thousand parts.
    """
    if isinstance(value, _PLAIN):
        return value
    if type(value) is str:  # not an enum's member
        return _hide_text(value, names, field)
    if isinstance(value, Dip):
        words: dict[str, Any] = {
            name: _hide_text(text, names, name) for name in _DIP_TEXTS if (text := getattr(value, name))
        }
        return (
            replace(value, **words)
            if any(words[name] is not getattr(value, name) for name in words)
            else value
        )
    if isinstance(value, dict):
        return {
            names.text(key) if type(key) is str else key: item
            if isinstance(item, _PLAIN)
            else _hide(item, names, str(key))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        hidden = [_hide(item, names, field) for item in value]
        return value if all(map(is_, hidden, value)) else type(value)(hidden)
    named = _fields(type(value))
    changes = {
        name: new for name in named if (new := _hide(old := getattr(value, name), names, name)) is not old
    }
    return replace(value, **changes) if changes else value


_PLAIN: Final = (int, float, type(None))
_DIP_TEXTS: Final = ("host", "phase", "boundary")
"""A day has a hundred thousand dips; the rest of each is numbers and words of ours."""


def _hide_text(text: str, names: Names, field: str) -> str:
    if field in _HOST_FIELDS:
        new = names.host(text)
    else:
        new = names.file(text) if field in _FILE_FIELDS and text else names.text(text)
    return text if new == text else new


class Redacted:
    """A recording whose tables hold no names."""

    def __init__(self, recording: Recorded, names: Names) -> None:
        self._recording = recording
        self._names = names
        self.start_unix_ns = recording.start_unix_ns
        self.end_unix_ns = recording.end_unix_ns
        self.path = Path("RUN")
        self.name = "run"

    @property
    def notes(self) -> tuple[Note, ...]:
        """What to know about the data; notes may name files."""
        notes: tuple[Note, ...] = getattr(self._recording, "notes", ())
        return tuple(replace(note, text=self._names.text(note.text)) for note in notes)

    def table(
        self,
        name: str,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """The rows, with names replaced; UUIDs are left out."""
        frame = self._recording.table(name, start_ns=start_ns, end_ns=end_ns, columns=columns)
        return frame.with_columns(self._column(frame[column]) for column in _textual(frame))

    def scan(self, name: str) -> pl.LazyFrame:
        """The same rows; whoever scans wants them as they were stored, so there is only one way to have them."""
        return self.table(name).lazy()

    def _column(self, series: pl.Series) -> pl.Series:
        if series.name == "uuid":
            return pl.Series(series.name, [None] * len(series), pl.String)
        seen = (
            series.unique().cast(pl.String).drop_nulls().unique().sort().to_list()
        )  # the same words in every run
        hidden = {text: _hide_text(text, self._names, series.name) for text in seen}
        changed = {text: new for text, new in hidden.items() if new != text}
        return series.cast(pl.String).replace(changed).cast(series.dtype) if changed else series


def _textual(frame: pl.DataFrame) -> Iterable[str]:
    return [name for name, kind in frame.schema.items() if kind.base_type() in _TEXT_TYPES]
