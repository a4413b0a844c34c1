"""GPUs of a trace of kernels and copies, as rows of the tables: shared by Kineto and Nsight Systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.base import HOST
from dipstick.importers.binding import Binding
from dipstick.importers.busy import Device, window_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dipstick.importers.account import Account
    from dipstick.importers.base import Sink

MOST_NAMES: Final = 100_000
"""Distinct names that are remembered."""
USUAL_GPUS: Final = 8


def place_of(device: int, rank: int | None, cards: int, host: str | None) -> tuple[int, str | None, str]:
    """Which GPU of which host a rank's device is: a CUDA ordinal counts only the devices that the process sees.

    Args:
        device: The CUDA ordinal in the trace.
        rank: The rank that wrote it; None: not known.
        cards: How many devices the process sees; 0: not known.
        host: The host, if it is known.

    Returns:
        GPU, host, and what was inferred (empty: nothing).

    Example: rank 3 that sees one device, 0, is on GPU 3; rank 9 that sees eight and uses 1 is on GPU 1 of node1.
    """
    if rank is None:
        return device, host, ""
    local = rank % USUAL_GPUS
    gpu, why = device, ""
    if device == 0 and local and cards <= 1:
        gpu, why = local, f"rank {rank} calls its only visible device 0: taken for GPU {local}"
    if host is None and rank >= USUAL_GPUS:
        node = rank // USUAL_GPUS
        host, why = (
            f"node{node}",
            f"{why}; " * bool(why) + f"rank {rank} is taken to be on node{node} (8 GPUs a node)",
        )
    return gpu, host, why


def check_apart(accounts: Sequence[Account]) -> None:
    """Refuse two traces that show one GPU at the same time: shares of one window can't be added up across files.

    Raises:
        ImportFormatError: There are such two; the message says how to name their hosts.
    """
    seen: dict[tuple[str, int], list[Account]] = {}
    for account in accounts:
        for key in account.levels if "gpu_activity" in account.facts else ():
            for other in seen.get(key, []):
                if (account.first_ns or 0) < (other.last_ns or 0) and (other.first_ns or 0) < (
                    account.last_ns or 0
                ):
                    raise ImportFormatError(
                        f"it and {other.file} both show GPU {key[1]} of {key[0]} at the same time.", where=account.file,
                        fix="If they are of two hosts, say so: node0=FILE node1=FILE. Traces of two processes on one GPU are "
                        "imported one by one; nsys records all processes of a GPU in one file.",
                    )  # fmt: skip
            seen.setdefault(key, []).append(account)


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote a trace.

    Attributes:
        base_ns: Added to its times.
        rank: The rank; None: not known, or several.
        host: Its host, if the file says so.
        pid: The rank's process.
        cards: ``name`` and ``totalGlobalMem`` by CUDA ordinal.
    """

    base_ns: int = 0
    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    cards: Sequence[Mapping[str, Any]] = ()


def write_devices(
    sink: Sink, devices: Mapping[int, Device], window: tuple[int, int] | None, origin: Origin
) -> None:
    """Write ``gpu_counters``, ``gpus`` and ``processes``; exact seconds become a fact of the file.

    Args:
        sink: Where rows go.
        devices: Activities by CUDA ordinal; ns.
        window: What the trace covers; outside of it nothing is known.
        origin: Who wrote it.
    """
    facts = []
    named = origin.host or (sink.host if sink.host != HOST else None)
    for index in sorted({*devices, *range(len(origin.cards) if origin.rank is None else 0)}):
        gpu, at, why = place_of(index, origin.rank, len(origin.cards), named)
        where = [
            pl.lit(gpu, dtype=pl.UInt16).alias("gpu"),
            *([] if at is None else [pl.lit(at).alias("host")]),
        ]
        sink.rows("gpus", _card(origin.cards[index] if index < len(origin.cards) else {}).with_columns(where))
        if index not in devices or window is None:
            continue
        if why:
            sink.bind(Binding(f"device {index}", "gpu", "", "likely", why))
        rows = devices[index].windows(*window).with_columns(pl.col("t_ns") + origin.base_ns, *where)
        sink.rows("gpu_counters", rows)
        if origin.rank is not None:
            who = {
                "pid": [origin.pid],
                "rank": [origin.rank],
                "gpu": [gpu],
                "role": ["trainer"],
                "source": ["trace"],
            }
            types = {"pid": pl.Int64, "rank": pl.Int32, "gpu": pl.Int32}
            sink.rows("processes", pl.DataFrame(who, schema_overrides=types).with_columns(where[1:]))
        facts.append({"gpu": gpu, **devices[index].facts()})
    sink.fact(gpu_activity=facts)
    if facts and window is not None:
        _say(sink, facts, window_of(window[1] - window[0]))
    closed = max((union.closed_ns for device in devices.values() for union in device.classes), default=0)
    if closed:
        sink.note(
            "info",
            f"{sink.file}: pauses up to {closed / 1000:.0f} µs count as busy: too many kernels to keep each",
        )


def _say(sink: Sink, facts: list[dict[str, Any]], width: int) -> None:
    """What these numbers are, and the exact seconds."""
    sink.note(
        "info",
        f"{sink.file}: GPU activity is worked out from every kernel and copy in windows of {width / 1e6:g} ms: "
        "time covered, not utilization.gpu; work of processes that were not traced is not in it; "
        "ranges are when the host launched work, kernels may run later",
    )
    for fact in facts:
        sink.note(
            "info",
            f"{sink.file}: GPU {fact['gpu']} ran something in {fact['busy_s']:.3f} of {fact['span_s']:.3f} s: "
            f"kernels {fact['kernel_work_s']:.3f} s, copies alone {fact['copy_device_s'] + fact['copy_bus_s']:.3f} s, "
            f"communication kernels alone {fact['comm_alone_s']:.3f} s (they move data or wait for other ranks)",
        )


def _card(card: Mapping[str, Any]) -> pl.DataFrame:
    """Name and memory of a GPU, as a row."""
    row = {"name": [_text(card.get("name"))], "mem_total_b": [_size(card.get("totalGlobalMem"))]}
    return pl.DataFrame(row, schema={"name": pl.String, "mem_total_b": pl.Int64})


def _text(value: object) -> str | None:
    return value[:200] if isinstance(value, str) else None


def _size(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**62 else None
