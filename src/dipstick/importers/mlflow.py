"""MLflow's stores: ``mlflow.db`` (SQLite), or a run's folder in ``mlruns``; with its system metrics."""

from __future__ import annotations

import os
import re
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding, check_bound
from dipstick.importers.gpu_rows import GpuRows
from dipstick.importers.run_choice import one_run
from dipstick.importers.sqlite_file import columns, has, opened
from dipstick.importers.training_rows import LogRow, TrainingRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "mlflow"
NAME: Final = "MLflow store (mlflow.db or mlruns)"
LARGEST: Final = 1 << 30
MOST_FILES: Final = 100_000
_LATEST_MS: Final = 4_100_000_000_000
_COLUMNS: Final = ("key", "value", "timestamp", "step", "is_nan", "run_uuid")
_METRICS: Final = {
    "utilization_percentage": ("util_pct", "%"), "memory_usage_megabytes": ("mem_used_b", "MB"),
    "power_usage_watts": ("power_w", "W"),
}  # fmt: skip
_KEY: Final = re.compile(r"system/(?:[^/]{1,200}/)?gpu_(\d{1,4})_(\w+)")

Point = tuple[int, int, str, float]
"""Time (ms), step, key, value."""


def sniff(head: Head) -> float:
    """MLflow's table, a run's folder, or ``mlruns``."""
    if head.is_dir:
        return 0.9 if _run_folders(head.path) else 0.0
    return 0.9 if has(head.path, "metrics", *_COLUMNS) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read one run of it.

    Raises:
        ImportFormatError: It is damaged, holds several runs and none was chosen, or nothing in it is known.
    """
    if path.is_dir():
        folders = {folder.name: folder for folder in _run_folders(path)}
        run = one_run({name: _name(folder) for name, folder in folders.items()}, options.run, str(path))
        _take(sorted(_files(folders[run], sink)), options, sink)
    else:
        with opened(path) as base:
            names = "SELECT run_uuid, name FROM runs LIMIT 10000" if {"run_uuid", "name"} <= set(columns(base, "runs")) else \
                "SELECT DISTINCT run_uuid, '' FROM metrics LIMIT 10000"  # fmt: skip
            run = one_run({str(k): str(n or "") for k, n in base.execute(names)}, options.run, str(path))
            found = base.execute("SELECT timestamp, step, key, value, is_nan FROM metrics WHERE run_uuid = ? "
                                 "ORDER BY timestamp, step", (run,))  # fmt: skip
            _take(
                (p for row in found if (p := _point(row[:4], sink, bad=bool(row[4]))) is not None),
                options,
                sink,
            )
    check_bound(str(path), sink.account.bindings)
    sink.note("info", f"{sink.file}: MLflow stamps a system metric when it publishes it, one interval (10 s unless set) after "
              "it was taken: dips are earlier than they look by as much")  # fmt: skip


def _take(points: Iterable[Point], options: Options, sink: Sink) -> None:
    """Numbers of one moment and step are one row."""
    rows, gpus = TrainingRows(sink), GpuRows(sink, options, _system)
    for (ms, step), group in groupby(points, key=lambda point: point[:2]):
        values = {key: value for _, _, key, value in group}
        system = {key: value for key, value in values.items() if key.startswith("system/")}
        own = {key: value for key, value in values.items() if key not in system}
        if system:
            gpus.add(ms * 1_000_000, system)
        if own:
            rows.add(LogRow(ms * 1_000_000, step, own))
    gpus.close()
    rows.close()


def _point(row: tuple[object, ...], sink: Sink, *, bad: bool = False) -> Point | None:
    """Checked cells; None, and counted, if they are none: a column of SQLite holds anything."""
    sink.saw(1)
    try:
        ms, step, value = int(str(row[0])), int(str(row[1])), float(str(row[3]))
    except ValueError:
        ms, step, value = -1, 0, 0.0
    if bad or not (0 <= ms < _LATEST_MS and abs(step) < 2**53 and isfinite(value)):
        sink.drop("number that is NaN, infinite or without a time", 1)
        return None
    return ms, step, str(row[2]), value


def _run_folders(path: Path) -> list[Path]:
    """The folder itself, or those one or two levels below, that are runs: ``meta.yaml`` beside ``metrics``."""
    candidates = [path, *path.glob("*"), *path.glob("*/*")][:MOST_FILES]
    return [
        f
        for f in candidates
        if (f / "meta.yaml").is_file() and (f / "metrics").is_dir() and not (f != path and f.is_symlink())
    ]


def _name(folder: Path) -> str:
    try:
        return (folder / "tags" / "mlflow.runName").read_text("utf-8", "replace")[:200]
    except OSError:
        return ""


def _files(folder: Path, sink: Sink) -> Iterator[Point]:
    """Lines ``timestamp value step`` of every metric's file; links are not followed.

    Raises:
        ImportFormatError: They are too large to be sorted.
    """
    total = many = 0
    for root, _, names in os.walk(folder / "metrics"):
        for name in sorted(names):
            path = Path(root, name)
            if path.is_symlink() or not path.is_file():
                continue
            total, many = total + path.stat().st_size, many + 1
            if total > LARGEST or many > MOST_FILES:
                raise ImportFormatError("its metrics are larger than 1 GiB or 100,000 files.", where=str(folder),
                                        fix="mlflow migrate-filestore makes an mlflow.db of it.")  # fmt: skip
            key = path.relative_to(folder / "metrics").as_posix()
            for line in path.read_text("utf-8", "replace").splitlines():
                cells = [*line.split(), "0", "", ""][:3]
                point = _point((cells[0], cells[2] or "0", key, cells[1]), sink)
                if point is not None:
                    yield point


def _system(key: str) -> Binding:
    match = _KEY.fullmatch(key)
    if match is None or match[2] not in _METRICS:
        return Binding(key, sure="not used")
    return Binding(key, *_METRICS[match[2]], gpu=int(match[1]))
