"""Table and column names of a recording; units are in the names, and times are integer nanoseconds.

On disk every ``*_ns`` time is either Unix time or, where the ``clock`` column is not 0, the monotonic
clock of one process; the reader converts it once, on load (see ``dipstick.clock``).
"""

from __future__ import annotations

from typing import Final

import polars as pl

SCHEMA_VERSION: Final = 1
KIND: Final = "dipstick-recording"

Schema = dict[str, pl.DataType | type[pl.DataType]]

_CLOCK: Final[Schema] = {"clock": pl.UInt16}

TABLES: Final[dict[str, Schema]] = {
    # one row a read of one GPU. `window_ns`: the counter's own averaging window, the value stands for
    # [t_ns - window_ns, t_ns]. `source`: "poll" (nvmlDeviceGetUtilizationRates) or "buffer" (nvmlDeviceGetSamples).
    "gpu": {
        "host": pl.String,
        "gpu": pl.UInt16,
        "t_ns": pl.Int64,
        "window_ns": pl.Int64,
        "source": pl.String,
        "util_pct": pl.Float32,
        "mem_util_pct": pl.Float32,
        "mem_used_b": pl.Int64,
        "power_w": pl.Float32,
        "sm_mhz": pl.Float32,
        "temp_c": pl.Float32,
        "throttle": pl.String,  # reasons joined by "+", empty: none
        **_CLOCK,
    },
    # GPM / DCGM profiling counters: means over [t_ns - window_ns, t_ns]
    "gpu_counters": {
        "host": pl.String,
        "gpu": pl.UInt16,
        "t_ns": pl.Int64,
        "window_ns": pl.Int64,
        "gr_active_pct": pl.Float32,
        "sm_active_pct": pl.Float32,
        "sm_occupancy_pct": pl.Float32,
        "tensor_active_pct": pl.Float32,
        "dram_active_pct": pl.Float32,
        "pcie_tx_mib_s": pl.Float32,
        "pcie_rx_mib_s": pl.Float32,
        "nvlink_rx_mib_s": pl.Float32,
        "nvlink_tx_mib_s": pl.Float32,
        # exclusive shares of the window, from a trace of every kernel and copy; together `gr_active_pct`
        "kernel_work_pct": pl.Float32,
        "copy_device_pct": pl.Float32,
        "copy_bus_pct": pl.Float32,
        "comm_alone_pct": pl.Float32,
        **_CLOCK,
    },
    "gpu_process": {
        "host": pl.String,
        "gpu": pl.UInt16,
        "t_ns": pl.Int64,
        "window_ns": pl.Int64,
        "pid": pl.Int64,
        "sm_pct": pl.Float32,
        "mem_pct": pl.Float32,
        "mem_used_b": pl.Int64,
        **_CLOCK,
    },
    "spans": {
        "host": pl.String,
        "pid": pl.Int64,
        "tid": pl.Int64,
        "rank": pl.Int32,
        "t0_ns": pl.Int64,
        "t1_ns": pl.Int64,
        "phase": pl.String,
        "name": pl.String,
        "step": pl.Int64,
        "parent": pl.String,
        "file": pl.String,
        "line": pl.Int32,
        "origin": pl.String,
        "pickled_b": pl.Int64,
        "jobs": pl.Int64,
        "detail": pl.String,
        **_CLOCK,
    },
    "jobs": {
        "host": pl.String,
        "rank": pl.Int32,
        "pid": pl.Int64,
        "job": pl.String,
        "step": pl.Int64,
        "submitted_ns": pl.Int64,
        "t0_ns": pl.Int64,
        "t1_ns": pl.Int64,
        "payload_b": pl.Int64,
        "payload_types": pl.String,
        "result_b": pl.Int64,
        "detail": pl.String,
        **_CLOCK,
    },
    "handoffs": {
        "host": pl.String,
        "rank": pl.Int32,
        "t_ns": pl.Int64,
        "from": pl.String,
        "to": pl.String,
        "types": pl.String,
        "count": pl.Int64,
        "bytes_b": pl.Int64,
        "device": pl.String,
        "transport": pl.String,
        "file": pl.String,
        "line": pl.Int32,
        **_CLOCK,
    },
    "collectives": {
        "host": pl.String,
        "rank": pl.Int32,
        "pid": pl.Int64,
        "name": pl.String,
        "entered_ns": pl.Int64,
        "left_ns": pl.Int64,
        "device_ms": pl.Float64,
        # Of kernels in a trace (source `kernel`): the process group, elements sent, and how many ranks take part (where the
        # group is not known, at most: all of the job's).
        "source": pl.String,
        "group": pl.String,
        "elements": pl.Int64,
        "members": pl.Int32,
        **_CLOCK,
    },
    "events": {
        "host": pl.String,
        "rank": pl.Int32,
        "pid": pl.Int64,
        "name": pl.String,
        "t0_ns": pl.Int64,
        "t1_ns": pl.Int64,
        "step": pl.Int64,
        "detail": pl.String,
        **_CLOCK,
    },
    "scalars": {"step": pl.Int64, "name": pl.String, "value": pl.Float64, "t_ns": pl.Int64, **_CLOCK},
    # CPU time and memory of the run's own processes. Where there is no GPU this is the stand-in for GPU telemetry; it is
    # CPU time, never utilization of anything else. `cpu_ms`: used in [t_ns - window_ns, t_ns], by all threads.
    "host_process": {
        "host": pl.String,
        "pid": pl.Int64,
        "t_ns": pl.Int64,
        "window_ns": pl.Int64,
        "cpu_ms": pl.Float64,
        "rss_b": pl.Int64,
        **_CLOCK,
    },
    # the host as a whole; bytes are those moved in [t_ns - window_ns, t_ns]
    "host_load": {
        "host": pl.String,
        "t_ns": pl.Int64,
        "window_ns": pl.Int64,
        "cpu_pct": pl.Float32,
        "io_wait_pct": pl.Float32,
        "mem_used_b": pl.Int64,
        "mem_total_b": pl.Int64,
        "disk_read_b": pl.Int64,
        "disk_written_b": pl.Int64,
        "net_received_b": pl.Int64,
        "net_sent_b": pl.Int64,
        **_CLOCK,
    },
    "processes": {
        "host": pl.String,
        "pid": pl.Int64,
        "role": pl.String,
        "rank": pl.Int32,
        "gpu": pl.Int32,
        "cmdline": pl.String,
        "source": pl.String,
    },
    "gpus": {
        "host": pl.String,
        "gpu": pl.UInt16,
        "name": pl.String,
        "uuid": pl.String,
        "mem_total_b": pl.Int64,
        "util_window_ns": pl.Int64,
    },
    # (monotonic, Unix) pairs of each process clock; `clock` is never 0 here
    "anchors": {
        "clock": pl.UInt16,
        "host": pl.String,
        "pid": pl.Int64,
        "mono_ns": pl.Int64,
        "unix_ns": pl.Int64,
    },
}

TIME_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(
        c
        for c in schema
        if c.endswith("_ns") and c not in {"window_ns", "util_window_ns", "mono_ns", "unix_ns"}
    )
    for name, schema in TABLES.items()
}
"""Columns that hold points in time, per table; the first one orders the table."""

SPAN_LIKE: Final = {name: cols for name, cols in TIME_COLUMNS.items() if "t0_ns" in cols}

CATEGORIES: Final = frozenset({
    "host", "source", "phase", "name", "parent", "file", "origin", "from", "to", "types", "device", "transport",
    "payload_types", "role", "throttle", "group",
})  # fmt: skip
"""Text columns with few distinct values: Categorical in memory and dictionary-encoded on disk (4 bytes a row
instead of 16). Comparisons and joins work as with String; cast to String before ``.str``."""


def frame_schema(table: str) -> Schema:
    """The schema of a loaded table: as in ``TABLES``, with ``CATEGORIES`` as ``pl.Categorical``."""
    return {name: pl.Categorical() if name in CATEGORIES else dtype for name, dtype in TABLES[table].items()}


REQUIRED_TIMES: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(c for c in cols if (name, c) not in {
        ("jobs", "submitted_ns"), ("scalars", "t_ns"), ("collectives", "left_ns"), ("events", "t1_ns"),
    })
    for name, cols in TIME_COLUMNS.items()
}  # fmt: skip
"""Times without which a row is useless. The others may be null: not known, never reached, or an instant."""

INTERVALS: Final[dict[str, tuple[str, str]]] = {
    "spans": ("t0_ns", "t1_ns"), "jobs": ("t0_ns", "t1_ns"), "events": ("t0_ns", "t1_ns"),
    "collectives": ("entered_ns", "left_ns"),
}  # fmt: skip
"""Start and end columns of the tables whose rows last."""

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "gpu": ("host", "gpu", "source", "t_ns"),
    "gpu_counters": ("host", "gpu", "t_ns"),
    "gpu_process": ("host", "gpu", "pid", "t_ns"),
    "host_process": ("host", "pid", "t_ns"),
    "host_load": ("host", "t_ns"),
    "spans": ("host", "pid", "tid", "rank", "name", "t0_ns", "t1_ns"),
    "jobs": ("host", "pid", "job", "t0_ns", "t1_ns"),
    "handoffs": ("host", "rank", "t_ns", "from", "to", "bytes_b"),
    "collectives": ("host", "pid", "rank", "name", "entered_ns"),
    "events": ("host", "pid", "rank", "name", "t0_ns", "t1_ns"),
}
"""Columns that identify a row: two rows that agree in all of them are one row written twice. ``scalars`` has no
such key: a Trainer may log the same number twice in a step."""
