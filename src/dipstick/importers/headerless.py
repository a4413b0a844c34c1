"""Columns without a name: what their cells allow. One possibility is taken and said to be likely; several are refused."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding, ambiguous
from dipstick.importers.times import find_format

_SUFFIXED: Final = re.compile(r"[+-]?(\d+(?:\.\d+)?)\s*([A-Za-z%°]{1,5})")
_BY_SUFFIX: Final = {"%": "util_pct", "MiB": "mem_used_b", "W": "power_w", "MHz": "sm_mhz", "C": "temp_c"}
_HINTS: Final = {
    "power_w": r"power|watt|pwr", "util_pct": r"util|usage|load", "mem_used_b": r"mem|vram", "temp_c": r"temp",
    "sm_mhz": r"clock|freq|mhz",
}  # fmt: skip
_COLDEST: Final = 15.0
"""A temperature in degrees Celsius below this is none; utilization reaches 0."""


def bare_gpu(binding: Binding, values: list[float], where: str) -> Binding:
    """A column ``GPU0``: the file's name says what it shows, if its values allow that.

    Args:
        binding: With the GPU.
        values: The first numbers.
        where: The file.

    Returns:
        The column bound, or not bound with the choices as meaning.
    """
    allowed = _allowed(values)
    hinted = [
        key for key, words in _HINTS.items() if key in allowed and re.search(words, Path(where).name.lower())
    ]
    if len(hinted) == 1:
        low, high = min(values, default=0.0), max(values, default=0.0)
        unit = {"mem_used_b": "MiB", "util_pct": "%", "power_w": "W", "temp_c": "C", "sm_mhz": "MHz"}[
            hinted[0]
        ]
        why = f"the file's name says so, and its values ({low:g} to {high:g}) allow it"
        return replace(binding, meaning=hinted[0], unit=unit, sure="likely", why=why)
    why = "the name says which GPU, not what it shows"
    return replace(binding, meaning="|".join(allowed), why=why)


def _allowed(values: list[float]) -> list[str]:
    """Quantities that these values can be."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    limits = {
        "util_pct": (0.0, 101.0), "power_w": (0.0, 2000.0), "mem_used_b": (0.0, 1e7), "temp_c": (_COLDEST, 120.0),
        "sm_mhz": (100.0, 4000.0),
    }  # fmt: skip
    return [key for key, (least, most) in limits.items() if least <= low and high <= most]


def infer(found: list[Binding], cells: list[list[str]], where: str) -> list[Binding]:
    """Bind columns of a file without header.

    Units in cells say most: one ``%`` column is likely utilization.gpu, one ``MiB`` column that changes memory.used.
    Without units (``nounits``): the time by its form; a column of whole numbers 0..100 that reaches below 15 is
    utilization, if it is the only one; a constant next to a smaller one is memory.total next to memory.used; numbers
    with two decimals are power (nvidia-smi prints nothing else so).

    Raises:
        ImportFormatError: Two columns could be the same quantity.
    """
    open_ones = [i for i, b in enumerate(found) if b.sure != "you said so"]
    by_unit = _by_suffix(found, cells, open_ones, where)
    if by_unit:
        return by_unit
    known: dict[int, tuple[str, str, str]] = {}
    for i in open_ones:
        if find_format(cells[i]) is not None:
            known[i] = ("time", "", "its cells are times")
            break
    rest = [i for i in open_ones if i not in known]
    known |= _memory(cells, rest)
    rest = [i for i in rest if i not in known]
    known |= _power(cells, rest)
    rest = [i for i in rest if i not in known]
    index = next((i for i in rest if _cycles(cells[i])), None)
    if index is not None:
        known[index] = ("gpu", "", "its cells count 0, 1, … again and again")
        rest.remove(index)
    known |= _utilization(cells, rest, where)
    return [
        Binding(b.source, *known[i][:2], "likely", known[i][2]) if i in known else b
        for i, b in enumerate(found)
    ]


def _by_suffix(
    found: list[Binding], cells: list[list[str]], open_ones: list[int], where: str
) -> list[Binding]:
    """By the units in the cells; empty if they have none."""
    units: dict[str, list[int]] = {}
    for i in open_ones:
        matches = [match for cell in cells[i] if (match := _SUFFIXED.fullmatch(cell))]
        if matches and matches[0][2] in _BY_SUFFIX:
            units.setdefault(matches[0][2], []).append(i)
    bound = list(found)
    for unit, columns in units.items():
        if unit == "MiB":
            constant = [i for i in columns if len(set(cells[i])) == 1]
            columns = [i for i in columns if i not in constant] or columns[:1]  # noqa: PLW2901 - the same, narrowed
        if len(columns) > 1 and unit in {"%", "MiB"}:
            names = " and ".join(found[i].source for i in columns)
            choices = ["util_pct", "mem_util_pct"] if unit == "%" else ["mem_used_b", "ignore"]
            raise ambiguous(
                where,
                found[columns[0]].source,
                choices,
                f"{names} are both in {unit}, and there is no header",
            )
        why = f"the only one in {unit}, and there is no header"
        bound[columns[0]] = Binding(found[columns[0]].source, _BY_SUFFIX[unit], unit, "likely", why)
    if not units:
        return []
    for i in open_ones:
        if bound[i] is found[i] and find_format(cells[i]) is not None:
            bound[i] = Binding(found[i].source, "time", "", "likely", "its cells are times")
            break
        if bound[i] is found[i] and _cycles(cells[i]):
            bound[i] = Binding(
                found[i].source, "gpu", "", "likely", "its cells count 0, 1, … again and again"
            )
    return bound


def _whole(cells: list[str]) -> list[int]:
    """The cells as whole numbers; empty if one is none."""
    good = [int(cell) for cell in cells if re.fullmatch(r"\d{1,9}", cell)]
    return good if len(good) == len(cells) else []


def _memory(cells: list[list[str]], rest: list[int]) -> dict[int, tuple[str, str, str]]:
    """A constant of at least 1 GiB in MiB, and a column of whole numbers never above it."""
    for i in rest:
        total = set(_whole(cells[i]))
        if len(total) != 1 or not 1000 <= (most := total.pop()) <= 2_000_000:  # noqa: PLR2004 - MiB of a GPU
            continue
        below = [j for j in rest if j != i and (values := _whole(cells[j])) and 110 < max(values) <= most]  # noqa: PLR2004
        if len(below) == 1:
            why = f"never above column {i + 1}, which is always {most:,}"
            return {
                i: ("mem_total_b", "MiB", "a constant of that size"),
                below[0]: ("mem_used_b", "MiB", why),
            }
    return {}


def _power(cells: list[list[str]], rest: list[int]) -> dict[int, tuple[str, str, str]]:
    """The only column with two decimals."""
    found = [i for i in rest if all(re.fullmatch(r"\d{1,4}\.\d\d", cell) for cell in cells[i])]
    return {found[0]: ("power_w", "W", "the only numbers with two decimals")} if len(found) == 1 else {}


def _cycles(cells: list[str]) -> bool:
    """``0 1 2 3 0 1 2 3``: each row one more, then 0 again."""
    values = _whole(cells)
    top = max(values, default=0)
    return 0 < top < 64 and all(b == (a + 1) % (top + 1) for a, b in pairwise(values))  # noqa: PLR2004


def _utilization(cells: list[list[str]], rest: list[int], where: str) -> dict[int, tuple[str, str, str]]:
    """The only column of percentages.

    Raises:
        ImportFormatError: There are several.
    """
    shares = [i for i in rest if (v := _whole(cells[i])) and max(v) <= 100 and min(v) < _COLDEST]  # noqa: PLR2004 - percent
    if len(shares) > 1:
        raise ambiguous(
            where, str(shares[0] + 1), ["util_pct", "mem_util_pct", "gpu"],
            f"columns {' and '.join(str(i + 1) for i in shares)} could all be percentages, and there is no header",
        )  # fmt: skip
    if not shares:
        return {}
    return {shares[0]: ("util_pct", "%", "the only whole numbers from below 15 to at most 100")}


def needs_names(where: str, names: tuple[str, ...], row: tuple[str, ...]) -> ImportFormatError:
    """The refusal of a file without header of which nothing can be told."""
    shown = ", ".join(f"{name}: {cell!r}" for name, cell in list(zip(names, row, strict=False))[:12])
    return ImportFormatError(
        "it has no header, and its cells do not tell what they are.", where=where,
        fix=f"Say it: --bind 1=time --bind 2=util_pct … (first row: {shown}).",
    )  # fmt: skip
