"""What each column or key of an imported file was taken for, in which unit, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal

from dipstick.errors import ImportFormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Sure = Literal["certain", "likely", "you said so", "not used", "unrecognised"]
"""``certain``: the format defines it. ``likely``: inferred, ``why`` says from what. ``not used``: known, but no
analysis needs it. ``unrecognised``: nobody knows it."""

BOUND: Final = ("certain", "likely", "you said so")

_SHARE: Final = {"%": 1.0, "ratio": 100.0}
_BYTES: Final = {
    "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "kB": 1e3, "MB": 1e6, "GB": 1e9,
}  # fmt: skip
_RATE: Final = {"MiB/s": 1.0, "B/s": 2.0**-20, "KiB/s": 2.0**-10, "GiB/s": 2.0**10, "MB/s": 1e6 / 2**20}


@dataclass(frozen=True, slots=True)
class Meaning:
    """A quantity that a column can hold.

    Attributes:
        key: Its name, for ``--bind``; the column of ``table`` where it is a metric.
        says: What it is, in words.
        table: The recording's table; empty for what places a row (time, GPU) or describes the GPU.
        units: Factor to the table's unit, by the unit's name; the first is the table's own.
    """

    key: str
    says: str
    table: str = ""
    units: Mapping[str, float] | None = None


def _all(*meanings: Meaning) -> dict[str, Meaning]:
    return {meaning.key: meaning for meaning in meanings}


MEANINGS: Final = _all(
    Meaning("time", "when the row was taken"),
    Meaning("date", "day of the time"),
    Meaning("clock", "time of day"),
    Meaning("elapsed", "seconds since the start"),
    Meaning("gpu", "index of the GPU"),
    Meaning("uuid", "which GPU"),
    Meaning("host", "which host"),
    Meaning("pid", "which process"),
    Meaning("name", "model of the GPU"),
    Meaning("mem_total_b", "memory of the GPU", units=_BYTES),
    Meaning("util_pct", "share of time with a kernel running (utilization.gpu)", "gpu", _SHARE),
    Meaning("mem_util_pct", "share of time with memory access (utilization.memory)", "gpu", _SHARE),
    Meaning("mem_used_b", "memory in use", "gpu", _BYTES),
    Meaning("power_w", "board power", "gpu", {"W": 1.0, "mW": 1e-3}),
    Meaning("sm_mhz", "SM clock", "gpu", {"MHz": 1.0, "GHz": 1e3}),
    Meaning("temp_c", "temperature", "gpu", {"C": 1.0}),
    Meaning("gr_active_pct", "graphics engine active", "gpu_counters", _SHARE),
    Meaning("sm_active_pct", "SMs active", "gpu_counters", _SHARE),
    Meaning("sm_occupancy_pct", "SM occupancy", "gpu_counters", _SHARE),
    Meaning("tensor_active_pct", "tensor pipe active", "gpu_counters", _SHARE),
    Meaning("dram_active_pct", "DRAM active", "gpu_counters", _SHARE),
    Meaning("pcie_tx_mib_s", "PCIe out", "gpu_counters", _RATE),
    Meaning("pcie_rx_mib_s", "PCIe in", "gpu_counters", _RATE),
    Meaning("nvlink_tx_mib_s", "NVLink out", "gpu_counters", _RATE),
    Meaning("nvlink_rx_mib_s", "NVLink in", "gpu_counters", _RATE),
    Meaning("sm_pct", "SM share of one process", "gpu_process", _SHARE),
    Meaning("mem_pct", "memory-access share of one process", "gpu_process", _SHARE),
    Meaning("process_mem_b", "memory in use by one process", "gpu_process", _BYTES),
    Meaning("scalar", "a number the training logged", "scalars"),
)
"""Everything that a telemetry column can be bound to, in the order in which it is listed."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One column or key.

    Attributes:
        source: Its name in the file (columns without a name: ``column 2``).
        meaning: A key of ``MEANINGS``, ``span NAME``, ``event NAME`` ...; empty if it is not bound.
        unit: The unit it was read in.
        sure: How sure that is.
        why: From what it was inferred, or why it is not used.
        gpu: The GPU that the column belongs to, where the column says so.
    """

    source: str
    meaning: str = ""
    unit: str = ""
    sure: Sure = "certain"
    why: str = ""
    gpu: int | None = None

    @property
    def is_metric(self) -> bool:
        """Whether it puts values into a table (time and index alone explain nothing)."""
        known = MEANINGS.get(self.meaning)
        return self.sure in BOUND and bool(self.meaning) and (known is None or bool(known.table))

    def plain(self) -> dict[str, Any]:
        """As it is stored in the manifest."""
        whole = {
            "source": self.source, "meaning": self.meaning or None, "unit": self.unit or None,
            "sure": self.sure, "why": self.why or None, "gpu": self.gpu,
        }  # fmt: skip
        return {key: value for key, value in whole.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Wish:
    """One ``--bind COLUMN=MEANING[:UNIT][@GPU]``.

    Attributes:
        column: Name, number from 1, or a pattern in which ``*`` is the GPU's index (``GPU*``).
        meaning: A key of ``MEANINGS``.
        unit: Its unit; empty: the table's own.
        gpu: The GPU it belongs to.
    """

    column: str
    meaning: str
    unit: str = ""
    gpu: int | None = None

    def fits(self, name: str, number: int) -> bool:
        """Whether it means this column (``number`` counts from 1)."""
        return self.column in (name, str(number)) or fnmatchcase(name, self.column)

    def binding(self, name: str) -> Binding:
        """What the user said of this column."""
        gpu = self.gpu
        head, star, tail = self.column.partition("*")
        if gpu is None and star:
            index = name.removeprefix(head).removesuffix(tail)
            gpu = int(index) if index.isascii() and index.isdigit() and len(index) < 6 else None  # noqa: PLR2004
        return Binding(name, self.meaning, self.unit, "you said so", gpu=gpu)


def parse_wish(text: str) -> Wish:
    """Read the value of ``--bind``.

    Args:
        text: ``GPU*=power_w``, ``vram=mem_used_b:MiB``, ``2=util_pct@0``.

    Returns:
        The wish.

    Raises:
        UsageError: It has no such form, or names no such meaning or unit; the choices are listed.
    """
    column, equals, rest = text.rpartition("=")
    rest, _, gpu = rest.partition("@")
    meaning, _, unit = rest.partition(":")
    if not equals or not column or (gpu and not (gpu.isascii() and gpu.isdigit())):
        raise UsageError(f"--bind {text!r} is not COLUMN=MEANING[:UNIT][@GPU].")
    if meaning == "ignore":
        return Wish(column, "", "", None)
    if meaning not in MEANINGS:
        raise UsageError(
            f"--bind: there is no meaning {meaning!r}.", fix=f"Meanings: {', '.join(MEANINGS)}, ignore."
        )
    units = MEANINGS[meaning].units
    if unit and (units is None or unit not in units):
        raise UsageError(
            f"--bind: {meaning} has no unit {unit!r}.", fix=f"Units: {', '.join(units or {}) or 'none'}."
        )
    return Wish(column, meaning, unit, int(gpu) if gpu else None)


def wished(wishes: tuple[Wish, ...], name: str, number: int) -> Binding | None:
    """What the user said of a column, None if nothing; the last word counts."""
    said = [wish for wish in wishes if wish.fits(name, number)]
    if not said:
        return None
    if not said[-1].meaning:
        return Binding(name, sure="not used", why="you said so")
    return said[-1].binding(name)


def factor(binding: Binding) -> float:
    """What a value is multiplied by to be in the table's unit."""
    units = MEANINGS[binding.meaning].units if binding.meaning in MEANINGS else None
    return 1.0 if units is None or not binding.unit else units[binding.unit]


def ambiguous(where: str, column: str, choices: list[str], why: str) -> ImportFormatError:
    """The refusal of a column that could be several things.

    Args:
        where: The file.
        column: The column.
        choices: Keys of ``MEANINGS`` that its values allow.
        why: What makes it ambiguous.
    """
    says = "; or ".join(
        f"--bind '{column}={key}' if it is {MEANINGS[key].says if key in MEANINGS else key}"
        for key in choices
    )
    return ImportFormatError(
        f"column {column!r} is ambiguous: {why}.", where=where, fix=f"Say what it is: {says}."
    )


def check_bound(where: str, bindings: list[Binding]) -> None:
    """Refuse a file of which nothing is understood.

    Raises:
        ImportFormatError: No column is a metric; the message lists what is there.
    """
    if not bindings or any(binding.is_metric for binding in bindings):
        return
    shown = ", ".join(repr(b.source) for b in bindings[:20]) + (", …" if len(bindings) > 20 else "")  # noqa: PLR2004
    raise ImportFormatError(
        "0 metrics bound: no column or key is one that dipstick knows.",
        where=where,
        fix=f"It has {shown}. Say what they are: --bind COLUMN=MEANING, with one of {', '.join(MEANINGS)}.",
    )
