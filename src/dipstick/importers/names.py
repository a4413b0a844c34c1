"""What column names of GPU telemetry mean: nvidia-smi, dmon, pmon, rocm-smi, amd-smi, and what people write by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_UNIT_WORDS: Final = {
    "%": "%", "percent": "%", "pct": "%", "percentage": "%", "mib": "MiB", "mb": "MiB", "mbytes": "MiB",
    "gib": "GiB", "gb": "GiB", "kib": "KiB", "kb": "KiB", "bytes": "B", "b": "B", "w": "W", "watt": "W",
    "watts": "W", "mw": "mW", "mhz": "MHz", "ghz": "GHz", "c": "C", "celsius": "C", "degc": "C", "vram%": "%",
    "s": "s", "sec": "s", "ms": "ms", "us": "us", "ns": "ns", "ratio": "ratio",
}  # fmt: skip
"""Units as they stand in names and cells. nvidia-smi's MB are MiB, and so are those of people who log it."""

_EXACT: Final = {
    # nvidia-smi --query-gpu, by its canonical names
    "utilization.gpu": ("util_pct", "%"), "utilization.memory": ("mem_util_pct", "%"),
    "memory.used": ("mem_used_b", "MiB"), "memory.total": ("mem_total_b", "MiB"), "power.draw": ("power_w", "W"),
    "power.draw.instant": ("power_w", "W"), "power.draw.average": ("power_w", "W"),
    "clocks.current.sm": ("sm_mhz", "MHz"), "clocks.sm": ("sm_mhz", "MHz"), "temperature.gpu": ("temp_c", "C"),
    "index": ("gpu", ""), "uuid": ("uuid", ""), "gpu_uuid": ("uuid", ""), "pci.bus_id": ("uuid", ""),
    "gpu_bus_id": ("uuid", ""), "name": ("name", ""), "gpu_name": ("name", ""), "timestamp": ("time", ""),
    # amd-smi monitor --csv, rocm-smi --csv
    "gpu use": ("util_pct", "%"), "gfx": ("util_pct", "%"), "power_usage": ("power_w", "W"),
    "hotspot_temperature": ("temp_c", "C"), "gfx_clock": ("sm_mhz", "MHz"), "vram_used": ("mem_used_b", "MiB"),
    "vram_total": ("mem_total_b", "MiB"), "average graphics package power": ("power_w", "W"),
    "current socket graphics package power": ("power_w", "W"), "temperature (sensor edge)": ("temp_c", "C"),
    "temperature (sensor junction)": ("temp_c", "C"), "vram total used memory": ("mem_used_b", "B"),
    "vram total memory": ("mem_total_b", "B"), "sclk clock speed:": ("sm_mhz", "MHz"),
}  # fmt: skip
"""Names that one tool defines: certain."""

_LIKELY: Final = {
    "time": "t|time|date_?time|ts|_timestamp|wall_?time|time_?stamp|unix_?time|epoch|unix|datetime|sampled_at|logged_at",
    "date": "date|day",
    "clock": "time_of_day|clock",
    "elapsed": "elapsed(_time)?|_?runtime|relative_time(_process|_wall)?|seconds|uptime|since_start|t_rel",
    "gpu": "gpu(_?(id|idx|index|no|num|number))?|device(_?(id|idx|index))?|gpu#|card|minor_number|cuda(_?(id|index))?|id|idx",
    "util_pct": "(gpu_)?(util(i[sz]ation)?|usage|use|load|busy|activity)(_gpu)?|volatile_gpu_util|gpu_core_util(ization)?|"
    "gfx_activity|sm_util(ization)?|gpu_util_rate|util_rate",
    "mem_used_b": "(gpu_)?(mem(ory)?|vram|fb)_?(used|usage|use|alloc(ated)?)|used_?(gpu_)?(mem(ory)?|vram)|vram|fb",
    "mem_total_b": "(gpu_)?(mem(ory)?|vram)_?total|total_?(gpu_)?(mem(ory)?|vram)",
    "power_w": "(gpu_|board_)?(power|pwr)(_?(draw|usage|use|consumption))?|watts",
    "sm_mhz": "(gpu_)?(sm_?(clock|clk|freq(uency)?)|(clock|clk|freq)_?sm|sclk|gfx_?clk|core_?clock|pclk)",
    "temp_c": "(gpu_)?temp(erature)?(_gpu|_core)?|gtemp",
    "host": "host(name)?|node(_?name)?|machine|server",
    "pid": "pid|process_id",
    "uuid": "gpu_?uuid|pci(_?bus)?(_?id)?|bus_?id",
    "name": "gpu_?(name|model|type)|model(_name)?|product_name|device_name",
}  # fmt: skip
"""What people call these things in their own logs: likely."""

_AMBIGUOUS: Final = {
    "(gpu_)?mem(ory)?_util(i[sz]ation)?|util(i[sz]ation)?_mem(ory)?|mem(ory)?_(rate|load|activity)": (
        "mem_util_pct",
        "ignore",
    ),
    "gpu_?mem(ory)?|mem(ory)?": ("mem_used_b", "mem_util_pct", "ignore"),
}
"""Names for two things: time with memory access, and memory in use."""

_UNUSED: Final = re.compile(
    r"pstate|perf(ormance)?_state|fan.*|pcie.*|enc(oder)?|dec(oder)?|jpg|ofa|mclk|mtemp|bar1|ccpm|.*ecc.*|sbecc|dbecc|pci|"
    r"driver_version|count|display.*|persistence_mode|compute_mode|mig.*|(enforced_)?power_(limit|cap|max|min).*|clocks?_.*|mem_?clock|"
    r"utilization_(encoder|decoder|jpeg|ofa)|temperature_memory|memory_(free|reserved|temperature)|mem(ory)?_?(free|avail.*)|vram_?free|"
    r"free_?(mem(ory)?|vram)|(gpu_)?(mem(ory)?|vram)_?(used_?|usage_?|use_?|allocated_?)?(percent(age)?|pct|frac(tion)?|ratio|%)|"
    r"gpu_memory_(use|allocated)|pviol|tviol|rxpci|txpci|throttle.*|vbios.*|serial|inforom.*|energy.*|encoder_.*|"
    r"mem|memory_activity|cpu.*|ram.*|.*ram_.*|num_gpus|gpu_count|type|command|process_name|total_energy.*"
)
"""Known, and of no use to an analysis."""

_LIKELY_FORMS: Final = {meaning: re.compile(form) for meaning, form in _LIKELY.items()}
_AMBIGUOUS_FORMS: Final = {re.compile(form): choices for form, choices in _AMBIGUOUS.items()}
_BRACKET: Final = re.compile(r"^(.*?)\s*[\[(]\s*([^\[\]()]*?)\s*[\])]\s*$")
_INDEXED: Final = re.compile(
    r"^(?P<head>.*?)(?:gpu|cuda|card|device)[ _.:#-]?(?P<index>\d{1,5})(?!\d)(?P<tail>.*)$", re.IGNORECASE
)
_TRAILING: Final = re.compile(r"^(?P<head>[a-z][a-z_. %-]*?)[ _.](?P<index>\d{1,3})$", re.IGNORECASE)
_SHARE_OF_MEMORY: Final = re.compile(r"(gpu_)?(mem(ory)?|vram)(_?(used|usage|use|alloc(ated)?))?")


@dataclass(frozen=True, slots=True)
class Named:
    """What a name says.

    Attributes:
        meaning: A key of ``binding.MEANINGS``; empty if it is not one.
        unit: As the name has it; empty if it has none.
        sure: ``certain``, ``likely``, ``ambiguous``, ``not used`` or ``unrecognised``.
        gpu: The GPU in the name (``gpu1_util``).
        choices: What it may be, if it is ambiguous.
    """

    meaning: str = ""
    unit: str = ""
    sure: str = "unrecognised"
    gpu: int | None = None
    choices: tuple[str, ...] = ()


def named(name: str) -> Named:
    """What a column's name says.

    ``utilization.gpu [%]`` is certainly the utilization; ``gpu1_mem_used_mb`` is likely the memory of GPU 1 in MiB;
    ``GPU0`` says which GPU, and not what; ``memory_util`` may be two things.
    """
    text = " ".join(name.replace("\ufeff", "").strip().strip("\"'#").split())[:200]
    whole = _plain(text)
    if whole.sure != "unrecognised":
        return whole
    indexed = _INDEXED.match(text) or _TRAILING.match(text)
    if indexed is None:
        return whole
    rest = f"{indexed['head']} {indexed.groupdict().get('tail') or ''}".strip(" _.:/-[]()#")
    gpu = int(indexed["index"])
    if not rest or rest in _UNIT_WORDS:
        return Named("", _UNIT_WORDS.get(rest, ""), "ambiguous", gpu)
    inner = _plain(rest)
    if inner.meaning in {"gpu", "time", "date", "clock", "elapsed"} or inner.sure == "unrecognised":
        return whole
    return Named(inner.meaning, inner.unit, "likely" if inner.meaning else inner.sure, gpu, inner.choices)


def _plain(text: str) -> Named:
    """A name without a GPU in it."""
    bracket = _BRACKET.match(text)
    base, unit = (bracket[1], _UNIT_WORDS.get(bracket[2].lower().strip(), "")) if bracket else (text, "")
    for candidate in (text.lower(), base.lower()):
        if candidate in _EXACT:
            meaning, default = _EXACT[candidate]
            return Named(meaning, unit or default, "certain")
    if base.lower() in {"gpu", "gpus"} and unit == "%":
        return Named("util_pct", unit, "likely")
    words = re.sub(r"[^a-z0-9%#]+", "_", base.lower()).strip("_") or base.lower()
    stem, _, last = words.rpartition("_")
    return _stemmed(words, unit) or (_stemmed(stem, _UNIT_WORDS[last]) if stem and last in _UNIT_WORDS else None) or (
        _stemmed(words.rstrip("%").rstrip("_"), "%") if words.endswith("%") else None
    ) or Named("", unit, "not used" if _UNUSED.fullmatch(words) or _UNUSED.fullmatch(stem) else "unrecognised")  # fmt: skip


def _stemmed(words: str, unit: str) -> Named | None:
    """By what people call things; percent of memory is its fill level, which no analysis needs."""
    if unit == "%" and _SHARE_OF_MEMORY.fullmatch(words):
        return Named("", unit, "not used")
    for form, choices in _AMBIGUOUS_FORMS.items():
        if form.fullmatch(words):
            if unit in {"MiB", "GiB", "KiB", "B"} and "mem_used_b" in choices:
                return Named("mem_used_b", unit, "likely")
            return Named("", unit, "ambiguous", choices=choices)
    for meaning, form in _LIKELY_FORMS.items():
        if form.fullmatch(words):
            return Named(meaning, unit, "likely")
    return None
