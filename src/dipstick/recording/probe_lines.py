"""One line of a probe's segment as one row: typed and bounded, because a segment is a file that anyone may have written.

The contract with the probe is the table in docs/recording-format.md, "Probe segments".
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from dipstick.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Line = Mapping[str, Any]
    Row = dict[str, Any]

LONGEST_LINE: Final = 1 << 20
"""Bytes; a longer line is skipped."""
LONGEST_TEXT: Final = 512
LONGEST_DETAIL: Final = 2048
_INT64: Final = 2**63 - 1
_INT32: Final = 2**31 - 1
_EXTRA_COLUMNS: Final = ("pickled_b", "jobs")
"""Members of a span's ``x`` that have a column; the others go to ``detail`` as JSON."""


def parse_line(raw: bytes) -> Line | None:
    """A line as a JSON object with a kind, None for anything else."""
    if len(raw) > LONGEST_LINE:
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("k"), str) else None


def whole(value: object, most: int = _INT64) -> int | None:
    """An integer that fits its column; a boolean is none."""
    if isinstance(value, int) and not isinstance(value, bool) and -most <= value <= most:
        return value
    return None


def small(value: object) -> int | None:
    """An integer of 32 bits: ranks and line numbers."""
    return whole(value, _INT32)


def count(value: object) -> int | None:
    """An integer that is not negative: bytes, jobs."""
    number = whole(value)
    return number if number is not None and number >= 0 else None


def real(value: object) -> float | None:
    """A finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e300 else math.inf  # noqa: PLR2004 - int() of a long literal overflows float()
        return number if math.isfinite(number) else None
    return None


def text(value: object, longest: int = LONGEST_TEXT) -> str | None:
    """A string that can be stored (half a surrogate pair can't), cut to a length; the empty one is none."""
    if isinstance(value, str) and value:
        return value[:longest].encode("utf-8", "replace").decode()
    return None


def words(value: object) -> str | None:
    """A string, or a list of strings joined by commas: types that crossed."""
    if isinstance(value, list):
        return text(", ".join(item[:LONGEST_TEXT] for item in value[:64] if isinstance(item, str)))
    return text(value)


def detail(value: object) -> str | None:
    """Free text, or anything else as JSON."""
    if value is None or isinstance(value, str):
        return text(value, LONGEST_DETAIL)
    try:
        return text(json.dumps(value, sort_keys=True), LONGEST_DETAIL)
    except (ValueError, RecursionError):
        return None


def job_id(value: object) -> str | None:
    """A job's id, which may be a number."""
    return text(str(value)) if isinstance(value, int) and abs(value) < _INT64 else text(value)


def _span(line: Line) -> Row:
    extra = line.get("x")
    extra = dict(extra) if isinstance(extra, dict) else {}
    own = {name: count(extra.pop(name, None)) for name in _EXTRA_COLUMNS}
    step = whole(line.get("step"))
    step = whole(extra.pop("step", None)) if step is None else step  # a user's own loop: span("step", step=3)
    phase = text(line.get("ph"))
    return {
        "t0_ns": whole(line.get("a")),
        "t1_ns": whole(line.get("b")),
        "tid": whole(line.get("tid")),
        "name": text(line.get("n")),
        "step": step,
        "parent": text(line.get("p")),
        "phase": phase if phase in PHASES else None,
        "file": text(line.get("f")),
        "line": small(line.get("l")),
        "origin": "measured",
        "detail": detail(extra) if extra else None,
        **own,
    }


def _handoff(line: Line) -> Row:
    return {
        "t_ns": whole(line.get("t")),
        "from": text(line.get("from")),
        "to": text(line.get("to")),
        "types": words(line.get("types")),
        "count": count(line.get("count")),
        "bytes_b": count(line.get("bytes")),
        "device": text(line.get("device")),
        "transport": text(line.get("transport")),
        "file": text(line.get("f")),
        "line": small(line.get("l")),
    }


def _collective(line: Line) -> Row:
    return {
        "name": text(line.get("n")),
        "entered_ns": whole(line.get("a")),
        "left_ns": whole(line.get("b")),
        "device_ms": real(line.get("device_ms")),
    }


def _event(line: Line) -> Row:
    return {
        "name": text(line.get("n")),
        "t0_ns": whole(line.get("a")),
        "t1_ns": whole(line.get("b")),
        "step": whole(line.get("step")),
        "detail": detail(line.get("detail")),
    }


def _scalar(line: Line) -> Row:
    return {
        "step": whole(line.get("step")),
        "name": text(line.get("n")),
        "value": real(line.get("v")),
        "t_ns": whole(line.get("t")),
    }


ROWS: Final[dict[str, tuple[str, Callable[[Line], Row], tuple[str, ...], tuple[str, ...]]]] = {
    "span": ("spans", _span, ("t0_ns", "t1_ns", "name"), ("host", "pid", "rank")),
    "handoff": ("handoffs", _handoff, ("t_ns",), ("host", "rank")),
    "coll": ("collectives", _collective, ("entered_ns", "name"), ("host", "pid", "rank")),
    "event": ("events", _event, ("t0_ns", "name"), ("host", "pid", "rank")),
    "scalar": ("scalars", _scalar, ("name", "value"), ()),
}
"""By kind: table, how a line becomes a row, columns without which it is none, columns that the segment fills in."""


def job_part(line: Line) -> Row | None:
    """Either side of a job: the parent's (submitted, payload) or the worker's (a, b); None without an id."""
    job = job_id(line.get("job"))
    if job is None:
        return None
    return {
        "job": job,
        "rank": small(line.get("rank")),
        "pid": count(line.get("pid")),
        "step": whole(line.get("step")),
        "submitted_ns": whole(line.get("submitted")),
        "t0_ns": whole(line.get("a")),
        "t1_ns": whole(line.get("b")),
        "payload_b": count(line.get("payload_b")),
        "payload_types": words(line.get("payload_types")),
        "result_b": count(line.get("result_b")),
        "detail": detail(line.get("detail")),
    }
