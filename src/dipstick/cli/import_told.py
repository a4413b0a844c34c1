"""The account of an import, as text and as a JSON document."""

from __future__ import annotations

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
    lines = [f"{clean(str(made.path))}: {clean(recording.manifest.source)}, {whole}"]
    wide = max((len(table) for table in made.tables), default=0)
    lines += [f"  {table:<{wide}}  {rows:>9,} rows" for table, rows in made.tables.items()]
    for account, place in zip(made.accounts, made.places, strict=True):
        lines += ["", *_file(account, place), *_bindings(account.bindings)]
    notes = [
        f"  {'warning: ' if n.level == 'warning' else ''}{clean(n.text, 1000)}"
        for n in (*made.notes, *recording.notes)
    ]
    return "\n".join([*lines, "", *notes] if notes else lines)


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
    yield f"{clean(account.file)}: {', '.join(said)}"
    for (_, gpu), level in sorted(account.levels.items())[:SHOWN]:
        if level.count:
            mean = number(level.total / level.count)
            yield f"  GPU {gpu}: utilization {mean} % on average, {number(level.low, 0)} to {number(level.high, 0)} %"
    if account.gaps:
        yield f"  {count(account.gaps, 'gap')} in the samples: nothing is known of them, they are not idle time"
    for why, rows in account.dropped.items():
        yield f"  left out: {count(rows, 'row')}: {clean(why)}"
    if place.how:
        yield f"  time: {clean(place.how)}"


def _names(account: Account) -> list[str]:
    hosts = {host for host, _ in account.levels}
    names = [f"{gpu}" if len(hosts) == 1 else f"{host}:{gpu}" for host, gpu in sorted(account.levels)]
    return [clean(name) for name in names[:SHOWN]] + (
        [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    )


def _bindings(bindings: list[Binding]) -> Iterator[str]:
    """The binding table; what is not bound stands in two lists below it."""
    bound = [b for b in bindings if b.sure in BOUND and b.meaning]
    cells = [
        (clean(b.source, 60), _meaning(b), b.unit or "", b.sure, clean(b.why, 120)) for b in bound[:SHOWN]
    ]
    wide = [max((len(row[i]) for row in cells), default=0) for i in range(4)]
    for *row, why in cells:
        text = "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True))
        yield f"    {text}  {why}".rstrip()
    if len(bound) > SHOWN:
        yield f"    and {len(bound) - SHOWN:,} more (--json lists all)"
    for sure, says in (("not used", "known, not used"), ("unrecognised", "unrecognised")):
        names = [clean(b.source, 60) for b in bindings if b.sure == sure]
        if names:
            more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
            yield f"    {says}: {', '.join(names[:SHOWN])}{more}"


def _meaning(binding: Binding) -> str:
    """``util_pct of GPU 3: share of time ...``."""
    known = MEANINGS.get(binding.meaning)
    who = "" if binding.gpu is None else f" of GPU {binding.gpu}"
    return f"{clean(binding.meaning, 60)}{who}" + (f": {known.says}" if known else "")
