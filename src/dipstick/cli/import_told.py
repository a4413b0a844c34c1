"""The account of an import, as text and as a JSON document."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from dipstick.importers.binding import BOUND, MEANINGS
from dipstick.show.words import clean, count, listed, number, seconds, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.importers.account import Account
    from dipstick.importers.binding import Binding
    from dipstick.importers.files import Imported
    from dipstick.importers.place import Place
    from dipstick.recording.reader import Recording

SHOWN: Final = 40
"""Rows of the binding table on the screen, and names in a list; the manifest holds them all."""


WIDTH: Final = 80
SOURCE: Final = 30
"""Longer names of columns take a line of their own."""


def document(made: Imported, recording: Recording) -> dict[str, Any]:
    """The account for ``--json``."""
    return {
        "schema_version": 1,
        "recording": str(recording.path),
        "source": recording.manifest.source,
        "seconds": (recording.end_unix_ns - recording.start_unix_ns) / 1e9,
        "tables": [{"table": table, "rows": rows} for table, rows in made.tables.items()],
        "files": [
            {**account.plain(), **place.plain()}
            for account, place in zip(made.accounts, made.places, strict=True)
        ],
        "notes": [{"level": note.level, "text": note.text} for note in (*made.notes, *recording.notes)],
    }


def told(made: Imported, recording: Recording) -> str:
    """The recording and its tables, a paragraph a file (what it holds, what its columns became), then the notes."""
    whole = span((recording.end_unix_ns - recording.start_unix_ns) / 1e9)
    lines = _lines(f"{clean(str(made.path))}: {clean(recording.manifest.source)}, {whole}")
    wide = max((len(table) for table in made.tables), default=0)
    lines += [f"  {table:<{wide}}  {rows:>9,} rows" for table, rows in made.tables.items()]
    for account, place in zip(made.accounts, made.places, strict=True):
        lines += ["", *_file(account, place), *_bindings(account.bindings)]
    notes = list(_notes(made, recording))
    return "\n".join([*lines, "", *notes] if notes else lines)


def _notes(made: Imported, recording: Recording) -> Iterator[str]:
    """Those that do not repeat what the file's own paragraph says of its time."""
    told_above = {
        f"{account.file}: {place.how}" for account, place in zip(made.accounts, made.places, strict=True)
    }
    for note in (*made.notes, *recording.notes):
        if note.text not in told_above:
            yield from _lines(clean(note.text, 1000), "  warning: " if note.level == "warning" else "  ")


def _lines(text: str, first: str = "", rest: str = "    ") -> list[str]:
    """The text in lines of 80; a longer word (a path) is not broken, so that it can be copied."""
    return wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)  # fmt: skip


def _file(account: Account, place: Place) -> Iterator[str]:
    """``gpu.csv: nvidia-smi, 946 rows, GPUs 0 and 1, 479 s, a row every 1.00 s``, then each GPU's level."""
    facts = account.plain()
    said = [account.format, count(account.rows_read, "row")]
    if account.levels:
        several = "GPU" if len(account.levels) == 1 else "GPUs"
        said.append(f"{several} {listed(_names(account))}")
    if facts["span_s"] is not None:
        said.append(seconds(facts["span_s"]))
    if facts["interval_s"] is not None:
        said.append(
            f"a row every {seconds(facts['interval_s'])} (at most {seconds(facts['longest_interval_s'])})"
        )
    yield from _lines(f"{clean(account.file)}: {', '.join(said)}")
    for (_, gpu), level in sorted(account.levels.items())[:SHOWN]:
        if level.count:
            mean = number(level.total / level.count)
            yield f"  GPU {gpu}: utilization {mean} % on average, {number(level.low, 0)} to {number(level.high, 0)} %"
    if account.gaps:
        yield f"  {count(account.gaps, 'gap')} in the samples: nothing is known of them, they are not idle time"
    for why, rows in account.dropped.items():
        yield from _lines(f"{count(rows, 'row')}: {clean(why)}", "  left out: ")
    if place.how:
        yield from _lines(clean(place.how, 1000), "  time: " if place.is_known else "  time (warning): ")


def _names(account: Account) -> list[str]:
    hosts = {host for host, _ in account.levels}
    names = [f"{gpu}" if len(hosts) == 1 else f"{host}:{gpu}" for host, gpu in sorted(account.levels)]
    return [clean(name) for name in names[:SHOWN]] + (
        [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    )


def _bindings(bindings: list[Binding]) -> Iterator[str]:
    """The binding table; what is not bound stands in two lists below it."""
    bound = [b for b in bindings if b.sure in BOUND and b.meaning]
    yield from _table([(clean(b.source, 60), _meaning(b), b.unit or "", b.sure) for b in bound[:SHOWN]])
    if len(bound) > SHOWN:
        yield f"    and {len(bound) - SHOWN:,} more (--json lists all)"
    for sure, says in (("not used", "known, not used"), ("unrecognised", "unrecognised")):
        names = [clean(b.source, 60) for b in bindings if b.sure == sure]
        if names:
            more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
            yield from _lines(f"{', '.join(names[:SHOWN])}{more}", f"    {says}: ", "      ")


def _table(cells: list[tuple[str, str, str, str]]) -> Iterator[str]:
    """Name, meaning, unit and how sure; the meaning goes on below itself, a long name stands above its row."""
    name_w, unit_w, sure_w = (
        max((len(row[i]) for row in cells if i or len(row[0]) <= SOURCE), default=0) for i in (0, 2, 3)
    )
    room = WIDTH - 4 - name_w - unit_w - sure_w - 3 * 2
    for name, meaning, unit, sure in cells:
        first, *more = wrap(meaning, max(room, 20), subsequent_indent="  ") or [""]
        if len(name) > SOURCE:
            yield f"    {name}"
            name = ""  # noqa: PLW2901 - it stands above
        yield f"    {name:<{name_w}}  {first:<{room}}  {unit:<{unit_w}}  {sure}".rstrip()
        yield from (f"    {'':<{name_w}}  {line}" for line in more)


def _meaning(binding: Binding) -> str:
    """``util_pct of GPU 3: share of time ... (what speaks for it)``."""
    known = MEANINGS.get(binding.meaning)
    who = "" if binding.gpu is None else f" of GPU {binding.gpu}"
    why = f" ({clean(binding.why, 120)})" if binding.why else ""
    return f"{clean(binding.meaning, 60)}{who}" + (f": {known.says}" if known else "") + why
