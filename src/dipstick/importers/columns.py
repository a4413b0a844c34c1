"""Which column of a telemetry table is what: by name, by what its cells hold, by what the user said."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers import headerless
from dipstick.importers.binding import BOUND, MEANINGS, Binding, ambiguous, factor, wished
from dipstick.importers.layout import is_missing
from dipstick.importers.names import named
from dipstick.importers.times import TimeFormat, find_format, given_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.importers.binding import Sure
    from dipstick.importers.layout import Layout
    from dipstick.importers.options import Options

_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SUFFIX: Final = re.compile(r"[+-]?\d+(?:\.\d+)?\s*(%|MiB|MB|GiB|GB|KiB|W|MHz|C|°C|mW)")
_SUFFIX_UNITS: Final = {"MB": "MiB", "GB": "GiB", "°C": "C"}
MANY_GPUS: Final = 1024
"""No host has more; a column with larger numbers is no GPU index."""

SOME: Final = 0.1
"""A damaged row or two say nothing of what a column is."""

PERCENT: Final = 110.0
"""No percentage is above this (drivers round up to 101 or so)."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns are.

    Attributes:
        bindings: One a column, in order.
        time: How the time column writes times; None: there is none.
        places: Position of ``time``, ``date``, ``clock``, ``gpu``, ``uuid``, ``host``, ``pid``, ``name``, ``mem_total_b``.
        metrics: Position, meaning, factor and GPU (None: the row says) of each metric column.
        time_cells: First cells of the time, for formats in two columns joined.
    """

    bindings: tuple[Binding, ...]
    time: TimeFormat | None
    places: dict[str, int]
    metrics: tuple[tuple[int, str, float, int | None], ...]

    @property
    def is_wide(self) -> bool:
        """One column a GPU."""
        return any(gpu is not None for *_, gpu in self.metrics)


def numbers(cells: Sequence[str]) -> list[float]:
    """The numbers in cells, units cut off; cells without one are left out."""
    return [float(match[0]) for cell in cells if (match := _NUMBER.match(cell.strip()))]


def find_columns(layout: Layout, options: Options, where: str) -> Columns:
    """Bind every column of a table.

    Args:
        layout: Names and first rows.
        options: ``--bind``, ``--time-format``.
        where: The file, for messages.

    Raises:
        ImportFormatError: What the rows need (time, GPU, the only metric) is ambiguous; the choices are in the message.
    """
    cells = [layout.column(i) for i in range(len(layout.names))]
    first = [
        wished(options.wishes, name, i + 1) or _by_name(name, cells[i]) for i, name in enumerate(layout.names)
    ]
    if not layout.has_header:
        first = headerless.infer(first, cells, where)
    first, time = _with_time(first, cells, options, where)
    first = _one_gpu_column(first, cells, where)
    first = [_checked(b, cells[i], where) for i, b in enumerate(first)]
    first = _one_each(first)
    _refuse_if_needed(first, where)
    return _columns(first, time)


def _by_name(name: str, cells: list[str]) -> Binding:
    """What the name says, with the unit of the cells where the name has none."""
    told = named(name)
    if told.sure == "ambiguous":
        why = "may be " + " or ".join(told.choices) if told.choices else "names a GPU, not what it shows"
        return Binding(name, "|".join(told.choices), told.unit, "not used", why, told.gpu)
    if not told.meaning:
        return Binding(name, "", told.unit, "not used" if told.sure == "not used" else "unrecognised")
    sure: Sure = "certain" if told.sure == "certain" else "likely"
    return Binding(
        name,
        told.meaning,
        told.unit or unit_of(cells),
        sure,
        "" if sure == "certain" else "by its name",
        told.gpu,
    )


def unit_of(cells: Sequence[str]) -> str:
    """The unit behind the numbers, empty if they have none."""
    for cell in cells:
        if match := _SUFFIX.fullmatch(cell.strip()):
            return _SUFFIX_UNITS.get(match[1], match[1])
    return ""


def _with_time(
    found: list[Binding], cells: list[list[str]], options: Options, where: str
) -> tuple[list[Binding], TimeFormat | None]:
    """The time column, or a date and a clock column; others that looked like one are not used."""
    said = [i for i, b in enumerate(found) if b.sure == "you said so" and b.meaning in {"time", "elapsed"}]
    date = [i for i, b in enumerate(found) if b.meaning == "date"]
    clock = [i for i, b in enumerate(found) if b.meaning in {"clock", "time"}]
    if date and clock and not said:
        joined = [f"{a} {b}" for a, b in zip(cells[date[0]], cells[clock[0]], strict=True)]
        form = (
            given_format(options.time_format) if options.time_format else _form(joined, where, elapsed=False)
        )
        if form is not None:
            found[clock[0]] = replace(found[clock[0]], meaning="clock", unit=form.says)
            return _only(found, {date[0], clock[0]}), form
    named_time = [i for i, b in enumerate(found) if b.meaning in {"time", "elapsed"}]
    order = said or sorted(named_time, key=lambda i: found[i].meaning == "elapsed")
    unnamed = [i for i, b in enumerate(found) if not b.meaning and b.sure in {"unrecognised", "not used"}]
    for i in order if said else [*order, *unnamed]:
        elapsed = found[i].meaning == "elapsed" or bool(said)
        form = (
            given_format(options.time_format)
            if options.time_format and i in order
            else _form(cells[i], where, elapsed=elapsed)
        )
        if form is not None:
            why = found[i].why or ("" if i in order else "its cells are times")
            sure = found[i].sure if i in order else "likely"
            meaning = "elapsed" if form.kind == "relative" else "time"
            found[i] = Binding(found[i].source, meaning, form.says, sure, why)
            return _only(found, {i}), form
    return _only(found, set()), None


def _form(cells: list[str], where: str, *, elapsed: bool) -> TimeFormat | None:
    try:
        return find_format(cells, elapsed=elapsed)
    except ImportFormatError as error:
        raise ImportFormatError(error.what, where=where, fix=error.fix) from error


def _only(found: list[Binding], kept: set[int]) -> list[Binding]:
    """Columns that looked like times and are not the one."""
    return [
        Binding(
            b.source,
            sure="not used",
            why="another column gives the time" if kept else "its cells are no times",
        )
        if b.meaning in {"time", "date", "clock", "elapsed"} and i not in kept
        else b
        for i, b in enumerate(found)
    ]


def _one_gpu_column(found: list[Binding], cells: list[list[str]], where: str) -> list[Binding]:
    """Which column is the GPU's index: the one that tells rows apart; a column ``gpu`` may also be its utilization."""
    mine = [i for i, b in enumerate(found) if b.meaning == "gpu"]
    said = [i for i in mine if found[i].sure == "you said so"]
    if said or not mine:
        return [
            _unused(b, "you named another column") if i in mine and i not in said else b
            for i, b in enumerate(found)
        ]
    indices = [i for i in mine if found[i].sure == "certain" or _are_indices(cells[i])]
    has_util = any(b.meaning == "util_pct" for b in found)
    for i in mine:
        if i in indices:
            continue
        values = numbers(cells[i])
        is_share = bool(values) and max(values) <= PERCENT and not has_util and found[i].sure == "likely"
        found[i] = replace(found[i], meaning="util_pct", unit="%", why="its values are no indices but percentages") if is_share else (
            _unused(found[i], "its values are no indices")
        )  # fmt: skip
    if (
        len(indices) == 1
        and found[indices[0]].sure == "likely"
        and not has_util
        and _is_constant_zero(cells[indices[0]])
    ):
        metrics = [b for b in found if b.meaning in MEANINGS and MEANINGS[b.meaning].table]
        if not metrics:
            raise ambiguous(where, found[indices[0]].source, ["gpu", "util_pct"], "it is 0 in every row")
    best = max(indices, key=lambda i: (len(set(cells[i])), found[i].sure == "certain"), default=None)
    for i in indices:
        if i != best:
            found[i] = _unused(
                found[i], f"column {found[best].source!r} tells the GPUs apart" if best is not None else ""
            )
    return found


def _unused(binding: Binding, why: str) -> Binding:
    return Binding(binding.source, sure="not used", why=why)


def _are_indices(cells: list[str]) -> bool:
    """Small whole numbers, each many times (or one row a GPU): ``0 1 2 3 0 1 ...``; ``card0`` counts."""
    some = [cell for cell in cells if not is_missing(cell)]
    digits = [re.fullmatch(r"(?:card|gpu|cuda:?)?\s?(\d{1,5})", cell.lower()) for cell in some]
    values = [int(match[1]) for match in digits if match]
    if not values or len(values) < len(some) or max(values) >= MANY_GPUS:
        return False
    different = len(set(values))
    return max(values) <= max(64, different) and different <= max(16, len(values) / 2)


def _is_constant_zero(cells: list[str]) -> bool:
    return {cell.strip() for cell in cells} == {"0"}


def _checked(binding: Binding, cells: list[str], where: str) -> Binding:
    """A metric with a unit that its values allow; bare GPU columns by the file's name and their range."""
    if binding.sure == "not used" and binding.gpu is not None and not binding.meaning:
        return headerless.bare_gpu(binding, numbers(cells), where)
    meaning = MEANINGS.get(binding.meaning)
    if meaning is None or meaning.units is None or binding.sure not in BOUND:
        return binding
    unit = binding.unit if binding.unit in meaning.units else unit_of(cells)
    values = numbers(cells)
    if binding.sure == "you said so":
        return replace(
            binding, unit=binding.unit or (unit if unit in meaning.units else next(iter(meaning.units)))
        )
    if "%" in meaning.units:
        return _share(binding, unit, values)
    if binding.meaning in {"mem_used_b", "mem_total_b", "process_mem_b"} and unit not in meaning.units:
        return _memory(binding, values)
    return replace(binding, unit=unit if unit in meaning.units else next(iter(meaning.units)))


def _share(binding: Binding, unit: str, values: list[float]) -> Binding:
    """Percent, or a ratio if all values are fractions up to 1."""
    if binding.sure == "likely" and sum(value > PERCENT for value in values) > SOME * len(values):
        return _unused(binding, "values above 100 are no percentages")
    fractions = bool(values) and max(values) <= 1.0 and any(0 < v < 1 for v in values)
    if binding.sure == "likely" and fractions and unit != "%":
        return replace(binding, unit="ratio", why=f"{binding.why}; no value is above 1".strip("; "))
    return replace(binding, unit="%")


def _memory(binding: Binding, values: list[float]) -> Binding:
    """Without a unit: MiB as nvidia-smi has it, bytes if the numbers are large; small ones may be GiB or percent."""
    top = max(values, default=0.0)
    if top >= 1e7:  # noqa: PLR2004 - ten million MiB are 10 TiB
        return replace(
            binding, unit="B", sure="likely", why=f"{binding.why}; its size says bytes".strip("; ")
        )
    if top > 200 or not top:  # noqa: PLR2004 - GiB of today's GPUs, and percent, are below
        return replace(
            binding,
            unit="MiB",
            why=f"{binding.why}; its size says MiB".strip("; ") if binding.sure == "likely" else "",
        )
    return Binding(
        binding.source,
        "mem_used_b",
        sure="not used",
        why="may be percent, GiB or MiB; say :GiB or :MiB with --bind",
    )


def _one_each(found: list[Binding]) -> list[Binding]:
    """One column a quantity (and GPU): what the user said before what is certain before what is likely, then the first."""
    rank = {"you said so": 0, "certain": 1, "likely": 2}
    taken: dict[tuple[str, int | None], int] = {}
    for i, b in sorted(enumerate(found), key=lambda pair: (rank.get(pair[1].sure, 3), pair[0])):
        if b.sure not in BOUND or not b.meaning:
            continue
        first = taken.setdefault((b.meaning, b.gpu), i)
        if first != i:
            found[i] = _unused(b, f"{found[first].source!r} gives that")
    return found


def _refuse_if_needed(found: list[Binding], where: str) -> None:
    """An ambiguous column is left unbound; if nothing else is bound, the choices are asked for."""
    if any(b.is_metric for b in found):
        return
    open_ones = [b for b in found if b.sure == "not used" and b.meaning]
    if open_ones:
        choices = open_ones[0].meaning.split("|")
        raise ambiguous(where, open_ones[0].source, choices, open_ones[0].why)


def _columns(found: list[Binding], time: TimeFormat | None) -> Columns:
    tidy = [replace(b, meaning="") if b.sure not in BOUND else b for b in found]
    places = {b.meaning: i for i, b in enumerate(tidy) if b.meaning in _PLACES}
    metrics = tuple(
        (i, b.meaning, factor(b), b.gpu) for i, b in enumerate(tidy) if b.is_metric and b.meaning in MEANINGS
    )
    return Columns(tuple(tidy), time, places, metrics)


_PLACES: Final = frozenset(
    {"time", "elapsed", "date", "clock", "gpu", "uuid", "host", "pid", "name", "mem_total_b"}
)
