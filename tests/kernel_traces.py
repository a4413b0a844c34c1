"""Hand-made traces of kernels: Kineto events and Nsight databases."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]
US = 1_700_000_000_000_000
"""Unix time in microseconds at which hand-made traces begin."""
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"


def kernel(
    start_ms: float, ms: float, name: str = GEMM, *, cat: str = "kernel", device: Any = 0, **args: Any
) -> Row:
    """A kernel, or a copy or memset by ``cat``."""
    at = US + round(start_ms * 1000)
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": at, "dur": ms * 1000,
            "args": {"device": device, "stream": 7, **args}}  # fmt: skip


def note(start_ms: float, ms: float, name: str) -> Row:
    """A range of the host."""
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 41, "tid": 41,
            "ts": US + round(start_ms * 1000), "dur": ms * 1000, "args": {}}  # fmt: skip


def trace(path: Path, events: list[Any], *, indent: int | None = None, **header: Any) -> Path:
    """Write a trace; gzip by its name."""
    text = json.dumps({"schemaVersion": 1, **header, "traceEvents": events}, indent=indent).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, totalMemory INTEGER, cuDevice INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, globalPid INTEGER, demangledName INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, copyKind INTEGER, bytes INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER, end INTEGER, deviceId INTEGER, globalPid INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER",
    "PROCESSES": "globalPid INTEGER, name TEXT",
    "TARGET_INFO_SYSTEM_ENV": "name TEXT, value TEXT",
}


def export(path: Path, **rows: list[tuple[Any, ...]]) -> Path:
    """Write a database with the named tables; ``StringIds`` is always there."""
    with closing(sqlite3.connect(path)) as base:
        for table in {"StringIds", *rows}:
            base.execute(f"CREATE TABLE {table} ({TABLES[table]})")
            for row in rows.get(table, []):
                marks = ",".join("?" * len(row))
                base.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608 - our own names
        base.commit()
    return path
