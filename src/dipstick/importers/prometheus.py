"""Prometheus ``query_range`` (or ``query``) answers with DCGM's metrics, as the HTTP API returns them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from dipstick.importers.binding import MEANINGS, Binding, ambiguous, check_bound, factor, wished
from dipstick.importers.dcgm_fields import FIELDS, is_blank
from dipstick.importers.samples import Samples
from dipstick.importers.series_json import objects

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options
    from dipstick.model import FloatArray, IntArray

FORMAT: Final = "prometheus"
NAME: Final = "Prometheus query_range JSON (DCGM exporter)"

HOST_LABELS: Final = ("Hostname", "hostname", "node", "kubernetes_node", "instance")
YEAR_2099_S: Final = 4.1e9
NAMELESS: Final = "value"
"""What ``--bind`` calls a series that lost its name in a PromQL function."""

HELD: Final = 0.9
"""Share of the runs of equal values that must be as long as the scrape interval."""

Key = tuple[str, int]


@dataclass(slots=True)
class _Found:
    """Series by GPU and meaning."""

    series: dict[Key, dict[str, list[tuple[IntArray, FloatArray]]]] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    models: dict[Key, tuple[str | None, str | None]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    points: int = 0
    host_label: str = ""


def sniff(head: Head) -> float:
    """The envelope of the API."""
    text = head.text[:4096]
    return 0.95 if '"resultType"' in text and ('"matrix"' in text or '"vector"' in text) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read every series; one row a GPU and moment, all metrics side by side.

    Raises:
        ImportFormatError: No series is a GPU metric that is known; a series has no name.
    """
    found = _Found()
    for item in objects(path, "result", sink.progress):
        _take(item, found, options, str(path))
    sink.saw(found.points)
    check_bound(str(path), list(found.bindings.values()))
    units = {name: _decided(b, found) for name, b in found.bindings.items()}
    sink.bind(Binding("values[0]", "time", "Unix time in s"), Binding("gpu", "gpu"), *units.values())
    if found.host_label:
        certain = found.host_label.lower() == "hostname"
        sink.bind(Binding(found.host_label, "host", "", "certain" if certain else "likely",
                          "" if certain else "it may name the exporter, not the host"))  # fmt: skip
    for why, many in found.dropped.items():
        sink.drop(why, many)
    samples = Samples(sink, options)
    for key in sorted(found.series):
        samples.add(_rows(key, found, units, sink))
    samples.finish()
    sink.note("info", f"{sink.file}: each point is the last scrape before it, up to 5 minutes old; the exporter itself "
              "samples every 30 s unless told otherwise (--collect-interval)")  # fmt: skip


def _take(item: dict[str, Any], found: _Found, options: Options, where: str) -> None:
    """One series of the answer."""
    labels = item.get("metric")
    labels = {str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {}
    points = item.get("values", [item["value"]] if "value" in item else [])
    points = points if isinstance(points, list) else []
    found.points += len(points)
    name = labels.get("__name__", NAMELESS)
    binding = _binding(name, found, options, where)
    gpu = labels.get("gpu", labels.get("GPU", ""))
    if not binding.meaning:
        found.dropped[f"metric {name}: {binding.sure}"] += len(points)
    elif "GPU_I_ID" in labels:
        found.dropped["MIG instance: what its utilization means is not known"] += len(points)
    elif not (gpu.isascii() and gpu.isdigit() and len(gpu) < 5):  # noqa: PLR2004 - digits of an index
        found.dropped["no gpu label"] += len(points)
    else:
        label = next((label for label in HOST_LABELS if labels.get(label)), "")
        found.host_label = found.host_label or label
        key = (labels.get(label, ""), int(gpu))
        times, values, bad = _points(points)
        found.dropped["no number, or DCGM's number for no value"] += bad
        found.series.setdefault(key, {}).setdefault(name, []).append((times, values))
        found.models.setdefault(key, (labels.get("modelName"), labels.get("UUID")))


def _binding(name: str, found: _Found, options: Options, where: str) -> Binding:
    """What a metric is.

    Raises:
        ImportFormatError: It has no name.
    """
    if name not in found.bindings:
        said = wished(options.wishes, name, 0)
        if said is None and name == NAMELESS:
            raise ambiguous(
                where, name, [key for key, m in MEANINGS.items() if m.table.startswith("gpu")][:8],
                "a PromQL function took the metric's name away",
            )  # fmt: skip
        known = FIELDS.get(name)
        found.bindings[name] = said or (
            Binding(name, *known)
            if known
            else Binding(name, sure="not used" if name.startswith("DCGM_FI_") else "unrecognised")
        )
    return found.bindings[name]


def _points(points: list[Any]) -> tuple[IntArray, FloatArray, int]:
    """Nanoseconds and values; NaN, blanks and what is no pair left out, and how many those were."""
    times, values = [], []
    for point in points:
        try:
            at, value = float(point[0]), float(point[1])
        except (TypeError, ValueError, IndexError, KeyError, OverflowError):
            continue
        if 0 < at < YEAR_2099_S and value == value and abs(value) != float("inf") and not is_blank(value):  # noqa: PLR0124 - NaN
            times.append(round(at * 1000) * 1_000_000)
            values.append(value)
    return np.array(times, dtype=np.int64), np.array(values, dtype=np.float64), len(points) - len(times)


def _decided(binding: Binding, found: _Found) -> Binding:
    """Percent or ratio, from all values of the metric."""
    if binding.unit != "?":
        return binding
    parts = [v for by_name in found.series.values() for _, v in by_name.get(binding.source, [])]
    top = max((float(v.max()) for v in parts if len(v)), default=0.0)
    unit = "ratio" if top <= 1.0 else "%"
    return Binding(
        binding.source,
        binding.meaning,
        unit,
        "certain" if unit == "%" or top > 0 else "likely",
        f"its largest value is {top:g}",
    )


def _rows(key: Key, found: _Found, units: dict[str, Binding], sink: Sink) -> pl.DataFrame:
    """All metrics of one GPU, joined on time; held values thinned to the scrapes."""
    host, gpu = key
    model, uuid = found.models[key]
    whole: pl.DataFrame | None = None
    for name, parts in found.series[key].items():
        binding = units[name]
        times, values = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        keep, scrape = scrapes(times, values)
        if scrape > 1:
            sink.drop("a value that was held until the next scrape", int((~keep).sum()))
        column = pl.DataFrame({"t_ns": times[keep], binding.meaning: values[keep] * factor(binding)}).unique(
            "t_ns", keep="first"
        )
        whole = column if whole is None else _joined(whole, column, binding.meaning)
    rows = (whole if whole is not None else pl.DataFrame(schema={"t_ns": pl.Int64})).sort("t_ns")
    return rows.with_columns(
        pl.lit(gpu, dtype=pl.Int64).alias("gpu"), pl.lit(host or None, dtype=pl.String).alias("host"),
        pl.lit(model, dtype=pl.String).alias("name"), pl.lit(uuid, dtype=pl.String).alias("uuid"),
    )  # fmt: skip


def _joined(whole: pl.DataFrame, column: pl.DataFrame, meaning: str) -> pl.DataFrame:
    """One more metric; two names of one field (old and new) fill each other up."""
    if meaning not in whole.columns:
        return whole.join(column, on="t_ns", how="full", coalesce=True)
    both = whole.join(column, on="t_ns", how="full", coalesce=True, suffix="_new")
    return both.with_columns(pl.coalesce(meaning, f"{meaning}_new").alias(meaning)).drop(f"{meaning}_new")


def scrapes(times: IntArray, values: FloatArray) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], int]:
    """Which points are scrapes, where the query's step is finer than the scrapes and each value is held.

    Step 15 s, scrapes every 30 s: ``1 1 5 5 5 5 2 2`` has runs of 2, 4 and 2: every second point is a scrape.

    Args:
        times: Of one series, sorted.
        values: At these times.

    Returns:
        The points to keep, and the points a scrape (1: every point is one).
    """
    start = np.concatenate([[True], np.diff(values) != 0]) if len(values) else np.zeros(0, dtype=bool)
    runs = np.diff(np.flatnonzero(np.concatenate([start, [True]])))
    inner = runs[1:-1]
    if len(inner) < 5:  # noqa: PLR2004 - too few changes to tell
        return np.ones(len(times), dtype=bool), 1
    held = int(np.quantile(inner, 1 - HELD, method="lower"))
    if held <= 1:
        return np.ones(len(times), dtype=bool), 1
    since = np.arange(len(values)) - np.maximum.accumulate(np.where(start, np.arange(len(values)), 0))
    return since % held == 0, held
