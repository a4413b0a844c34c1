"""Several files into one recording: read, placed on one time axis, and accounted for."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.account import Account
from dipstick.importers.base import HOST, Head, Sink
from dipstick.importers.binding import check_bound
from dipstick.importers.drift import drift_notes
from dipstick.importers.gpu_trace import check_apart
from dipstick.importers.options import Options
from dipstick.importers.place import Place, place
from dipstick.importers.registry import choose, sniff
from dipstick.importers.unused import unused
from dipstick.importers.views import redundant
from dipstick.importers.witness import Witness
from dipstick.model import Note
from dipstick.recording.folder import check_target, move_into
from dipstick.recording.schema import TIME_COLUMNS
from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dipstick.importers.base import Importer

INFO_KEY: Final = "imported"
"""Where the account of each file is in the manifest's ``info``: ``imported@WRITER``."""


ANCHOR_NS: Final = 1_000_000_000
"""Between anchors this far apart a clock may differ by 5 % without being taken for a step (``clock.STEP_BASE_NS``)."""

RELATIVE_BASE_NS: Final = 10**17
"""Relative times are stored from here on: a time of 0 in a recording is no time."""


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read."""

    path: Path
    importer: Importer
    host: str = HOST


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import made.

    Attributes:
        path: The recording folder.
        accounts: One a file.
        places: Where each file's clock lies.
        notes: What concerns no single file.
        tables: Rows of each table.
    """

    path: Path
    accounts: tuple[Account, ...]
    places: tuple[Place, ...]
    notes: tuple[Note, ...] = ()
    tables: dict[str, int] = field(default_factory=dict)


def find_sources(words: Sequence[str | Path], forced: str = "") -> tuple[list[Source], list[Note]]:
    """What the words of the command line name: files, folders that an importer knows, folders of files.

    Args:
        words: ``FILE``, ``FOLDER`` or ``HOST=FILE``.
        forced: Format of all of them; found out if empty.

    Returns:
        What to read, and notes on files that no importer knows (where there are others).

    Raises:
        ImportFormatError: A word names nothing, or nothing is left to read.
    """
    sources: list[Source] = []
    strange: list[tuple[Path, ImportFormatError]] = []
    for word in words:
        path, host = _split(str(word))
        for inner in _inside(path, forced):
            try:
                sources.append(Source(inner, choose(inner, forced), host))
            except ImportFormatError as error:
                if not inner.exists() or (len(words) == 1 and inner == path):
                    raise
                strange.append((inner, error))
    if not sources:
        raise strange[0][1] if strange else ImportFormatError("there is no file in it.", where=str(words[0]))
    return sources, [Note("warning", f"{path.name}: {error.what} Left out.") for path, error in strange]


def _split(word: str) -> tuple[Path, str]:
    """``node0=a.csv`` is a.csv of host node0, unless a file is called so."""
    host, equals, rest = word.partition("=")
    if not equals or not host or "/" in host or Path(word).exists():
        return Path(word), HOST
    return Path(rest), host


def _inside(path: Path, forced: str) -> list[Path]:
    """The path itself; for a folder that no importer knows as a whole, the plain files in it (no links)."""
    if not path.is_dir() or forced or sniff(path) is not None or (path / "manifest.json").is_file():
        return [path]
    plain = sorted(entry for entry in path.iterdir() if entry.is_file() and not entry.is_symlink())
    known = [entry for entry in plain if sniff(entry) is not None]
    return known or [path]


def import_files(
    words: Sequence[str | Path],
    out: str | Path,
    options: Options | None = None,
    *,
    force: bool = False,
    level: int = 3,
    created_unix_ns: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Imported:
    """Make one recording of several files.

    The recording appears at ``out`` when all is read: an import that fails leaves nothing, and what was there stays.

    Args:
        words: See :func:`find_sources`.
        out: The recording folder to make.
        options: What the files do not say.
        force: Replace an existing recording at ``out``.
        level: zstd level of the tables.
        created_unix_ns: Time of creation in the manifest; now if None.
        progress: Is told file name, bytes done, bytes in all.

    Returns:
        What was made.

    Raises:
        ImportFormatError: A file can't be read, understood or placed.
        RecordingError: ``out`` exists and ``force`` is not set.
        UsageError: There is no such format.
    """
    options = options or Options()
    folder = Path(out)
    check_target(folder, force=force)
    sources, notes = find_sources(words, options.format)
    temporary = folder.parent / f".{folder.name}.{os.getpid()}.importing"
    try:
        made = _import(sources, temporary, options, progress, level=level, created_unix_ns=created_unix_ns)
        move_into(temporary, folder)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
    return Imported(folder, made.accounts, made.places, (*notes, *made.notes), made.tables)


def _import(
    sources: list[Source],
    folder: Path,
    options: Options,
    progress: Callable[[str, int, int], None] | None,
    **how: Any,
) -> Imported:
    """Read every source with a writer of its own, then place them all."""
    accounts = [Account(s.path.resolve().name, s.importer.FORMAT, s.host) for s in sources]
    words = "; ".join(
        f"{s.importer.NAME.partition(' (')[0]} {a.file}" for s, a in zip(sources, accounts, strict=True)
    )
    level = how["level"]
    first = RecordingWriter.create(
        folder, origin="imported", host=sources[0].host, source=words, writer="import",
        created_unix_ns=how["created_unix_ns"], level=level,
    )  # fmt: skip
    others = [
        RecordingWriter.join(folder, host=source.host, writer=f"import{number}", level=level)
        for number, source in enumerate(sources[1:], start=2)
    ]
    writers = [first, *others]
    witnesses = (
        [Witness() for _ in sources] if len(sources) > 1 else None
    )  # one file has nothing to line up with
    try:
        for view, (source, account, writer) in enumerate(
            zip(sources, accounts, writers, strict=True), start=1
        ):
            sink = Sink(
                account,
                _into(writer, account, witnesses[view - 1] if witnesses else None),
                view=view,
                progress=_told(source.path, progress),
            )
            read_one(source, sink, options)
        if all(account.first_ns is None for account in accounts):
            raise ImportFormatError(
                "it holds no times: nothing in it can be put on a time axis.",
                where=", ".join(account.file for account in accounts),
                fix="Import it together with what has times: nvidia-smi's CSV, a .wandb file, W&B's system metrics.",
            )
        check_apart(accounts)
        places = place(accounts, options, witnesses)
        notes = [*_leave_out(accounts, writers), *unused(options, accounts)]
        _finish(accounts, places, writers)
    finally:
        for writer in writers:
            writer.close()
    total = Counter[str]()
    for account in accounts:
        total += account.tables
    return Imported(folder, tuple(accounts), tuple(places), tuple(notes), dict(total))


def _into(
    writer: RecordingWriter, account: Account, witness: Witness | None
) -> Callable[[str, pl.DataFrame], None]:
    """Append to a writer; relative times are moved to where a recording's times may lie."""

    def put(table: str, frame: pl.DataFrame) -> None:
        if witness is not None:
            witness.saw(table, frame)
        if account.clock == "relative":
            frame = frame.with_columns(
                pl.col(c) + RELATIVE_BASE_NS for c in TIME_COLUMNS[table] if c in frame.columns
            )
        writer.append(table, frame)

    return put


def read_one(source: Source, sink: Sink, options: Options) -> None:
    """Read one source into a sink.

    Raises:
        ImportFormatError: It can't be read, nothing in it is bound, or nothing in it is usable.
    """
    try:
        source.importer.read(source.path, options, sink)
    except OSError as error:
        name = str(error.filename or source.path)
        raise ImportFormatError(f"it can't be read: {error.strerror or error}.", where=name) from error
    check_bound(str(source.path), sink.account.bindings)
    if not sink.account.tables.total():
        dropped = ", ".join(f"{rows:,} {why}" for why, rows in sink.account.dropped.items())
        raise ImportFormatError(
            f"none of its {sink.account.rows_read:,} rows holds a usable value.",
            where=str(source.path),
            fix=f"Rows that can't be used: {dropped}." if dropped else "",
        )


def _told(path: Path, progress: Callable[[str, int, int], None] | None) -> Callable[[int], None] | None:
    if progress is None:
        return None
    size = path.stat().st_size if path.is_file() else 0
    return lambda done: progress(path.name, done, size)


def _leave_out(accounts: list[Account], writers: list[RecordingWriter]) -> list[Note]:
    """Of two files that show the same GPUs at the same time, the finer one stays."""
    notes = []
    for left, kept in redundant(accounts):
        writers[left].discard("gpu")
        rows = accounts[left].tables.pop("gpu")
        why = f"shows the same GPUs as {accounts[kept].file}, which is finer"
        accounts[left].dropped[why] += rows
        notes.append(
            Note("info", f"{accounts[left].file}: {why}: its {rows:,} utilization rows are left out")
        )
    return notes


def _finish(accounts: list[Account], places: list[Place], writers: list[RecordingWriter]) -> None:
    """Anchors, notes and the account of each file."""
    for account, where, writer in zip(accounts, places, writers, strict=True):
        if account.clock != "unix" and account.first_ns is not None:
            writer.append("anchors", _anchors(account, where))
            writer.note("info" if where.is_known else "warning", f"{account.file}: {where.how}")
        for note in account.notes:
            writer.note(note.level, note.text)
        for why, rows in account.dropped.items():
            writer.note("warning", f"{account.file}: {rows:,} rows left out: {why}")
        whole = {**account.plain(), **where.plain()}
        writer.set_info(**{f"{INFO_KEY}@{writer.writer}": whole})
    for note in drift_notes(accounts):
        writers[0].note(note.level, note.text)


def _anchors(account: Account, where: Place) -> list[dict[str, Any]]:
    """Where a file's clock lies: one row; one a second where its seconds are stretched (a larger change is a clock step)."""
    first, last = account.first_ns or 0, account.last_ns or 0
    base = RELATIVE_BASE_NS if account.clock == "relative" else 0
    times = [first] if where.rate == 1 else [*range(first, last, ANCHOR_NS), max(last, first + 1)]
    return [
        {"clock": 1, "host": account.host, "pid": 0, "mono_ns": at + base,
         "unix_ns": first + where.offset_ns + round((at - first) * where.rate)}
        for at in times
    ]  # fmt: skip


def known_files(head: Head) -> list[Path]:
    """Plain files of a folder that some importer knows; for folder importers that read what lies in them."""
    return [
        path
        for name in sorted(head.names)
        if (path := head.path / name).is_file() and sniff(path) is not None
    ]
