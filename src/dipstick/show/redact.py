"""A report and its recording without anybody's names: what is written for sharing is made from these two.

Renderers get the redacted pair, so none of them can forget it. The mapping is :class:`dipstick.show.names.Names`.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.model import Note
from dipstick.recording.schema import TABLES
from dipstick.show.names import Names
from dipstick.show.receipts import SAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dipstick.model import Report
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


def names_of(report: Report, recording: Recorded | None) -> Names:
    """Everything that has to be replaced."""
    hosts, files = {g.host for g in report.states_all}, set(_files(report))
    hosts |= {t.host for t in report.tracks.gpus} | {
        name.rpartition(":")[0] for name in report.run.unused_gpus
    }
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


def _values(recording: Recorded, table: str, column: str) -> list[str]:
    """Distinct texts of a column."""
    frame = recording.table(table, columns=[column])
    found: list[str] = frame[column].cast(pl.String).drop_nulls().unique().to_list()
    return found


def _pathlike(recording: Recorded, table: str, column: str) -> list[str]:
    """Distinct texts that hold a slash: few, where most are numbers."""
    frame = recording.table(table, columns=[column])[column].cast(pl.String).drop_nulls().unique()
    found: list[str] = frame.filter(frame.str.contains(r"[/\\]")).to_list()
    return found


def _files(report: Report) -> Iterator[str]:
    judged = [*(check.receipts for check in report.checks), *(claim.receipts for claim in report.claims)]
    yield from (receipt.file for receipts in judged for receipt in receipts if receipt.file)


def _strings(value: Any) -> Iterator[str]:
    """Every string in a report."""
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _strings(getattr(value, field.name))
    elif isinstance(value, dict):
        yield from _strings((*value.keys(), *value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _hide(value: Any, names: Names, field: str) -> Any:
    """The same value with every string in it replaced; what a string means follows from the field it is in."""
    if type(value) is str:  # not an enum's member
        return _hide_text(value, names, field)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _hide(getattr(value, f.name), names, f.name) for f in fields(value)})
    if isinstance(value, dict):
        return {_hide(key, names, "key"): _hide(item, names, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_hide(item, names, field) for item in value)
    return value


def _hide_text(text: str, names: Names, field: str) -> str:
    if field in _HOST_FIELDS:
        return names.host(text)
    return names.file(text) if field in _FILE_FIELDS and text else names.text(text)


class Redacted:
    """A recording whose tables hold no names."""

    def __init__(self, recording: Recorded, names: Names) -> None:
        self._recording = recording
        self._names = names
        self.start_unix_ns = recording.start_unix_ns
        self.end_unix_ns = recording.end_unix_ns

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

    def _column(self, series: pl.Series) -> pl.Series:
        if series.name == "uuid":
            return pl.Series(series.name, [None] * len(series), pl.String)
        texts = series.cast(pl.String)
        seen = texts.drop_nulls().unique().sort().to_list()  # the same words in every run
        hidden = {text: _hide_text(text, self._names, series.name) for text in seen}
        changed = {text: new for text, new in hidden.items() if new != text}
        return texts.replace(changed).cast(series.dtype) if changed else series


def _textual(frame: pl.DataFrame) -> Iterable[str]:
    return [name for name, kind in frame.schema.items() if kind.base_type() in _TEXT_TYPES]
