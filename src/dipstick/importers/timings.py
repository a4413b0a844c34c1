"""Per-step totals of a training log, laid out as spans inside their step: ``origin`` is ``reconstructed``.

A log says how long each part of a step took, not when it began. The parts are laid end to end from the step's start, in
the framework's own order, totals that contain others around them. Seconds that no key covers stay unattributed, at the
step's end. What does not fit (parts that overlap, as in asynchronous loops) is cut at the step's end, and counted.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.importers.binding import Binding
from dipstick.importers.timing_keys import TIMINGS, Timing, listed_why
from dipstick.phases import CONTAINER, STEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dipstick.importers.base import Sink

LONGEST_S: Final = 1e7
"""A step of more than 115 days is a number of something else."""
ROUNDING_NS: Final = 500_000
"""verl rounded to 3 decimals until July 2025: each number may be off by half a millisecond."""
EVENTS: Final = {"checkpoint": "checkpoint", "weight_sync": "weight_sync"}
"""Phases whose spans are events as well."""
_BATCH: Final = 4096


@dataclass(frozen=True, slots=True)
class LaidSpan:
    """One part of a step, placed.

    Attributes:
        name: What it is called.
        phase: A phase of ``phases.PHASES``; empty for containers and the step.
        t0_ns: Start, on the clock of the row.
        t1_ns: End.
        step: The framework's step number.
        parent: Name of the span around it; empty for what lies outside the step.
        cut_ns: Nanoseconds of its total that did not fit into its parent.
        origin: Always ``reconstructed``: the length was logged, the place was not.
    """

    name: str
    phase: str
    t0_ns: int
    t1_ns: int
    step: int | None
    parent: str = ""
    cut_ns: int = 0
    origin: str = "reconstructed"

    @property
    def detail(self) -> str | None:
        """What did not fit, in words."""
        return f"{self.cut_ns / 1e9:.3f} s more than fit into its {self.parent}" if self.cut_ns else None


def timing_of(key: str) -> Timing | None:
    """What part of a step the key holds the seconds of, None if it is no such key."""
    return TIMINGS.get(key)


def binding_of(key: str) -> Binding | None:
    """The binding of a timing key: a span, or a number that is listed and why; None if it is neither."""
    timing = TIMINGS.get(key)
    if timing is not None:
        why = "" if timing.sure == "certain" else f"{timing.framework} logs it"
        return Binding(key, f"span {timing.name}", timing.unit, timing.sure, why)
    why = listed_why(key)
    return (
        Binding(key, "scalar", "ms" if key.startswith("timing_per_token_ms") else "s", why=why)
        if why
        else None
    )


def lay_out(end_ns: int, step: int | None, values: Mapping[str, float]) -> list[LaidSpan]:
    """The parts of one step as spans, the last one ending at ``end_ns``.

    Args:
        end_ns: When the row was logged: the step, and what follows it, had ended.
        step: The framework's step number.
        values: Numbers by key, of one row (or all rows of one step); other keys are ignored.

    Returns:
        The step first, then its parts by start, what contains others first; empty if there is no timing among the keys.

    Example:
        ``timing_s/step`` 10, ``gen`` 6 and ``update_actor`` 3 ending at 10: gen [0, 6), update_actor [6, 9),
        and [9, 10) is the step's own.
    """
    parts = _parts(values)
    if not parts:
        return []
    whole = next((ns for timing, ns in parts if timing.phase == STEP), None)
    inner = [(timing, ns) for timing, ns in parts if timing.phase != STEP]
    keys = {timing.key for timing, _ in inner}
    top = [(timing, ns) for timing, ns in inner if _around(timing, keys) == ""]
    before, within, after = _sides(top, whole)
    length = sum(ns for _, ns in within) if whole is None else whole
    end = end_ns - sum(ns for _, ns in after)
    start = end - length
    spans: list[LaidSpan] = []
    first = start - sum(ns for _, ns in before)
    spans += _packed(before, inner, (first, start), step, "")
    if whole is not None:
        spans.append(LaidSpan("step", "", start, end, step))
    spans += _packed(within, inner, (start, end), step, "step" if whole is not None else "")
    spans += _packed(after, inner, (end, end_ns), step, "")
    return spans


def extent_ns(values: Mapping[str, float]) -> int:
    """Nanoseconds from the start of the first part to the end of the last: by how much a clock goes on in this step."""
    spans = lay_out(0, None, values)
    return -min((span.t0_ns for span in spans), default=0)


_Parts = list[tuple[Timing, int]]


def _parts(values: Mapping[str, float]) -> _Parts:
    """The timings among the keys, of the framework that has most of them, in order; in nanoseconds."""
    found = [
        (timing, round(value * 1e9))
        for key, value in values.items()
        if (timing := TIMINGS.get(key)) is not None and math.isfinite(value) and 0 < value < LONGEST_S
    ]
    if not found:
        return []
    framework, _ = Counter(
        (timing.framework, timing.key.rpartition(timing.name)[0]) for timing, _ in found
    ).most_common(1)[0]
    mine = [(timing, ns) for timing, ns in found if timing.framework == framework[0]]
    return sorted(mine, key=lambda part: part[0].order)


def _around(timing: Timing, keys: set[str]) -> str:
    """Key of the nearest part around it that was logged; empty: the step."""
    parent = timing.parent
    while parent and parent not in keys:
        parent = TIMINGS[parent].parent
    return parent


def _sides(top: _Parts, whole: int | None) -> tuple[_Parts, _Parts, _Parts]:
    """Parts before, in and after the step; those that versions place differently go in where the step has room."""
    before = [(timing, ns) for timing, ns in top if timing.place == "before"]
    room = None if whole is None else whole - sum(ns for timing, ns in top if timing.place == "in")
    slack = ROUNDING_NS * (len(top) + 1)
    within, after = [], []
    for timing, ns in top:
        if timing.place == "in" or (timing.place == "fits" and (room is None or ns <= room + slack)):
            within.append((timing, ns))
            if room is not None and timing.place == "fits":
                room -= ns
        elif timing.place != "before":
            after.append((timing, ns))
    return before, within, after


def _packed(
    parts: _Parts, everything: _Parts, hull: tuple[int, int], step: int | None, parent: str
) -> Iterator[LaidSpan]:
    """The parts end to end from the hull's start, cut at its end, each followed by what it contains."""
    keys = {timing.key for timing, _ in everything}
    at, laid, total = hull[0], 0, 0
    for timing, ns in parts:
        end = min(at + ns, hull[1])
        cut = ns - (end - at)
        phase = "" if timing.phase == CONTAINER else timing.phase
        yield LaidSpan(timing.name, phase, at, end, step, parent, cut)
        children = [part for part in everything if _around(part[0], keys) == timing.key]
        yield from _packed(children, everything, (at, end), step, timing.name)
        laid, total, at = laid + end - at + cut, total + ns, end
    assert laid == total, "laid-out seconds do not add up"  # noqa: S101 - the sum is the product's promise
    assert hull[0] <= at <= hull[1], "a part lies outside its step"  # noqa: S101


def driver() -> pl.DataFrame:
    """The row of the processes table that says whose timers these are: one driver's, for the whole job."""
    return pl.DataFrame(
        {"role": ["driver"], "rank": [0], "source": ["log"]}, schema_overrides={"rank": pl.Int32}
    )


def put_spans(sink: Sink, rows: Sequence[Mapping[str, object]]) -> None:
    """Write spans, by their columns, and the events among them."""
    if not rows:
        return
    types = {"rank": pl.Int32, "t0_ns": pl.Int64, "t1_ns": pl.Int64, "phase": pl.String, "step": pl.Int64,
             "parent": pl.String, "detail": pl.String}  # fmt: skip
    used = {name: types[name] for name in rows[0] if name in types}
    frame = pl.DataFrame(rows, schema_overrides=used, infer_schema_length=None)
    sink.rows("spans", frame)
    marked = frame.filter(pl.col("phase").is_in(list(EVENTS)))
    sink.rows(
        "events",
        marked.select("rank", pl.col("phase").replace(EVENTS).alias("name"), "t0_ns", "t1_ns", "step"),
    )


class LaidRows:
    """Spans of a whole log: batches, what did not fit, and how much no key covers.

    Args:
        sink: Where spans and events go.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held: list[LaidSpan] = []
        self._steps = self._over = 0
        self._worst: LaidSpan | None = None
        self._step_ns = self._free_ns = 0

    def add(self, end_ns: int, step: int | None, values: Mapping[str, float]) -> list[LaidSpan]:
        """Lay out one step; returns its spans."""
        spans = lay_out(end_ns, step, values)
        if not spans:
            return spans
        self._count(spans)
        self._held += [span for span in spans if span.t1_ns > span.t0_ns]
        if len(self._held) >= _BATCH:
            self._write()
        return spans

    def _count(self, spans: list[LaidSpan]) -> None:
        whole = next((span for span in spans if span.name == "step"), None)
        self._steps += 1
        if whole is not None:
            self._step_ns += whole.t1_ns - whole.t0_ns
            inside = sum(span.t1_ns - span.t0_ns for span in spans if span.parent == "step")
            self._free_ns += whole.t1_ns - whole.t0_ns - inside
        slack = ROUNDING_NS * (len(spans) + 1)
        cut = [span for span in spans if span.cut_ns > slack]
        self._over += bool(cut)
        self._worst = max(
            [*cut, *([self._worst] if self._worst else [])], key=lambda s: s.cut_ns, default=None
        )

    def close(self) -> None:
        """Write what is left; say that these spans are reconstructed, what did not fit, what no key covers."""
        self._write()
        if not self._steps:
            return
        file = self._sink.file
        self._sink.note("warning", f"{file}: the spans of {self._steps:,} steps are reconstructed: the log holds seconds per step, laid "
                        "end to end in the framework's order; where a part began inside its step was not measured")  # fmt: skip
        if self._worst is not None:
            self._sink.note("warning", f"{file}: in {self._over:,} of {self._steps:,} steps the parts take longer than their step (at most "
                            f"{self._worst.name} of step {self._worst.step}: {self._worst.detail}): they overlap; "
                            "what exceeds the step is cut off at its end")  # fmt: skip
        self._sink.rows("processes", driver())
        share = 100 * self._free_ns / self._step_ns if self._step_ns else 0.0
        self._sink.fact(reconstructed={
            "steps": self._steps, "step_s": self._step_ns / 1e9, "unattributed_s": self._free_ns / 1e9,
            "unattributed_pct": share, "steps_over": self._over,
        })  # fmt: skip

    def _write(self) -> None:
        """Spans and the events among them."""
        held, self._held = self._held, []
        put_spans(self._sink, [
            {"rank": 0, "t0_ns": s.t0_ns, "t1_ns": s.t1_ns, "phase": s.phase or None, "name": s.name, "step": s.step,
             "parent": s.parent or None, "origin": s.origin, "detail": s.detail}
            for s in held
        ])  # fmt: skip
