"""A trace in Chrome's JSON (``.json.gz``): ui.perfetto.dev, chrome://tracing, and scripts read it.

The Trace Event Format: ``X`` complete slices, ``i`` instants, ``C`` counters, ``s``/``f`` flows, ``M`` names; times are microseconds.
"""

from __future__ import annotations

import gzip
import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.show.trace_events import Counter, Slice, Trace, Track


def render(trace: Trace) -> bytes:
    """The whole file; one event a line, so that it can be read with line tools, too."""
    head = json.dumps({"start_unix_ns": trace.start_unix_ns, "made_by": "dipstick export"})
    lines = ",\n".join(json.dumps(event, allow_nan=False, separators=(",", ":")) for event in events(trace))
    text = f'{{"displayTimeUnit":"ms","otherData":{head},"traceEvents":[\n{lines}\n]}}\n'
    return gzip.compress(text.encode(), 6, mtime=0)


def events(trace: Trace) -> Iterator[dict[str, Any]]:
    """Every event; a group is a process, a track in it a thread. Flows start at the earlier of their two slices."""
    tracks = {track.key: track for track in trace.tracks}
    for track in trace.tracks:
        yield from _names(track)
    started: set[int] = set()
    for one in sorted(trace.slices, key=lambda s: s.t0):
        yield from _slice(one, tracks[one.track], started)
    for counter in trace.counters:
        yield from _counter(counter, tracks[counter.track])


def _names(track: Track) -> Iterator[dict[str, Any]]:
    """Groups and slice tracks are named and kept in order; counters carry their own name."""
    if track.parent == 0:
        yield {"ph": "M", "name": "process_name", "pid": track.key, "tid": 0, "args": {"name": track.name}}
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": track.key,
            "tid": 0,
            "args": {"sort_index": track.key},
        }
    elif not track.is_counter:
        place = {"pid": track.parent, "tid": track.key}
        yield {"ph": "M", "name": "thread_name", **place, "args": {"name": track.name}}
        yield {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": track.key}}


def _slice(one: Slice, track: Track, started: set[int]) -> Iterator[dict[str, Any]]:
    place = {"pid": track.parent, "tid": track.key, "ts": one.t0 / 1000}
    facts = {"args": one.args} if one.args else {}
    if one.t1 > one.t0:
        yield {
            "ph": "X",
            "name": one.name,
            "cat": "dipstick",
            **place,
            "dur": (one.t1 - one.t0) / 1000,
            **facts,
        }
    else:
        yield {"ph": "i", "s": "t", "name": one.name, "cat": "dipstick", **place, **facts}
    for flow in one.flows:
        kind = {"ph": "f", "bp": "e"} if flow in started else {"ph": "s"}
        started.add(flow)
        yield {**kind, "name": "handoff", "cat": "handoff", "id": flow, **place}


def _counter(counter: Counter, track: Track) -> Iterator[dict[str, Any]]:
    """A value that was not measured ends the line at 0 in viewers that know no holes; it is left out instead."""
    name = f"{track.name}, {track.unit}" if track.unit else track.name
    for t, value in zip(counter.t.tolist(), counter.value.tolist(), strict=True):
        if math.isfinite(value):
            yield {
                "ph": "C",
                "name": name,
                "pid": track.parent,
                "tid": 0,
                "ts": t / 1000,
                "args": {track.unit or "value": round(value, 4)},
            }
