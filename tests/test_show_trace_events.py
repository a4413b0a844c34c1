"""A recording as slices, counters and flows, and the formats that they are written in."""

from __future__ import annotations

import gzip
import io
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import HOSTILE
from dipstick.analysis.pipeline import analyse
from dipstick.show import trace_chrome, trace_perfetto, trace_tables
from dipstick.show.redact import without_names
from dipstick.show.trace_events import Slice, Trace, nested, side_by_side, trace_of
from records import Row, counters, cycle, job, memory, near, process, span, utilization
from worlds import event

if TYPE_CHECKING:
    from dipstick.recording.reader import Recording

EVIL = HOSTILE.replace("\ud800", "")  # no Parquet file can hold half a character


def recording(**more: Any) -> Recording:
    """One rank, two steps of 10 s, a job submitted in the reward of each, GPU samples with a hole, a checkpoint."""
    spans = [
        row | {"file": "/home/ann/train.py", "line": 12}
        for s in (0, 1)
        for row in cycle(0, s, 10.0 * s, (4, 3, 2, 1))
    ]
    gpu = utilization([95.0] * 50, mem_util_pct=30.0, mem_used_b=8 * 2**30) + utilization(
        [20.0] * 25, start=15.0
    )
    jobs = [
        job(f"j{s}", 10 * s + 5, 10 * s + 6, pid=7, step=s)
        | {"submitted_ns": (10 * s + 4) * 10**9 + 5 * 10**8, "payload_b": 512, "payload_types": "list[str]"}
        for s in (0, 1)
    ]
    rows: dict[str, Any] = {
        "spans": spans, "gpu": gpu, "jobs": jobs, "processes": [process(900, rank=0, gpu=0)], "events": [event("checkpoint", 9.0, 9.5), event("gc", 3.0)],
    }  # fmt: skip
    return memory(**(rows | more))


def made(found: Recording) -> Trace:
    return trace_of(analyse(found), found)


def named(trace: Trace) -> dict[str, list[Slice]]:
    """Slices by ``group/track``."""
    names = {t.key: t.name for t in trace.tracks}
    paths = {t.key: f"{names[t.parent]}/{t.name}" for t in trace.tracks if t.parent}
    found: dict[str, list[Slice]] = {}
    for one in trace.slices:
        found.setdefault(paths[one.track], []).append(one)
    return found


def test_ranks_gpus_workers_and_events_have_tracks() -> None:
    """In the order of a reader: what the GPUs did, then the ranks, then the workers."""
    trace = made(recording())
    names = {t.key: t.name for t in trace.tracks}
    assert [(names.get(t.parent, ""), t.name, t.unit) for t in trace.tracks] == [
        ("", "GPU 0 (node1)", ""), ("GPU 0 (node1)", "utilization.gpu", "%"), ("GPU 0 (node1)", "utilization.memory", "%"), ("GPU 0 (node1)", "state", ""),
        ("GPU 0 (node1)", "memory allocated", "GiB"), ("", "rank 0", ""), ("rank 0", "phase", ""), ("rank 0", "spans", ""),
        ("", "reward workers", ""), ("reward workers", "worker 7 of rank 0", ""), ("rank 0", "event checkpoint", ""), ("rank 0", "event gc", ""),
    ]  # fmt: skip


def test_phases_are_exclusive_and_fill_the_window() -> None:
    """Each starts where the one before ended; 20 s in all."""
    phases = named(made(recording()))["rank 0/phase"]
    assert [a.t1 for a in phases[:-1]] == [b.t0 for b in phases[1:]]
    assert sum(p.t1 - p.t0 for p in phases) == 20 * 10**9
    assert [p.name for p in phases][:4] == ["generate", "reward", "unattributed", "backward"]


def test_spans_carry_their_place_in_the_code() -> None:
    """And nothing that was not recorded."""
    spans = named(made(recording()))["rank 0/spans"]
    assert spans[0].args == {"file": "/home/ann/train.py:12", "step": 0}


def test_a_job_hangs_on_the_phase_that_submitted_it() -> None:
    """One flow id on both; the wait in the queue and the payload are facts of the job."""
    tracks = named(made(recording()))
    jobs, phases = tracks["reward workers/worker 7 of rank 0"], tracks["rank 0/phase"]
    rewards = [p for p in phases if p.name == "reward"]
    assert [p.flows for p in rewards] == [j.flows for j in jobs] == [[1], [2]]
    assert jobs[0].args == {"step": 0, "queued_ms": 500.0, "payload_bytes": 512, "payload_types": "list[str]"}


def test_a_job_without_a_submission_hangs_on_nothing() -> None:
    """No arrow is invented."""
    found = recording(jobs=[job("a", 5, 6) | {"submitted_ns": None}])
    assert [s.flows for s in made(found).slices if s.flows] == []


def test_a_hole_in_the_samples_ends_the_line() -> None:
    """Utilization until 10 s, nothing, then from 15 s on: a value that is not known in between."""
    trace = made(recording())
    util = trace.counters[0]
    at = util.t.tolist().index(10 * 10**9)
    assert np.isnan(util.value[at])
    assert util.value[at + 1] == 20.0
    assert util.t[at + 1] == 15 * 10**9


def test_counters_of_the_profiler_are_tracks_too() -> None:
    """SM activity beside utilization."""
    trace = made(recording(gpu_counters=counters([50.0] * 50)))
    assert "SM active" in [t.name for t in trace.tracks if t.is_counter]


def test_overlapping_jobs_of_one_process_get_lanes() -> None:
    """A pool of threads."""
    found = recording(jobs=[job("a", 5, 8, pid=7), job("b", 6, 7, pid=7)])
    assert sorted(path for path in named(made(found)) if "worker" in path) == [
        "reward workers/worker 7 of rank 0", "reward workers/worker 7 of rank 0 +1",
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=30))
def test_lanes_never_overlap(spans: list[tuple[int, int]]) -> None:
    """And no more lanes than jobs at one time."""
    times = [(start, start + length) for start, length in spans]
    lanes = side_by_side(times)
    for i, (a0, a1) in enumerate(times):
        for j, (b0, b1) in enumerate(times[:i]):
            assert lanes[i] != lanes[j] or a1 <= b0 or b1 <= a0 or a0 == a1 == b0 or b0 == b1
    assert side_by_side([(0, 4), (1, 2), (2, 3), (4, 5)]) == [0, 1, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=30))
def test_nested_slices_are_nested_or_apart(spans: list[tuple[int, int]]) -> None:
    """Whatever was recorded; the docstring's example too."""
    found = nested([Slice(1, start, start + length, "x") for start, length in spans])
    for i, a in enumerate(found):
        for b in found[i + 1 :]:
            assert b.t0 >= a.t1 or b.t1 <= a.t1
    assert [(s.t0, s.t1) for s in nested([Slice(1, 5, 12, "b"), Slice(1, 0, 10, "a")])] == [(0, 10), (5, 10)]


def test_times_before_the_first_row_are_cut() -> None:
    """The first sample stands for 0.2 s before it: no viewer takes negative times."""
    trace = made(recording(gpu=utilization([95.0] * 50, start=-0.2)))
    assert min(int(c.t.min()) for c in trace.counters) == 0
    assert min(s.t0 for s in trace.slices) == 0


# --- Chrome JSON ---


def chrome(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(trace_chrome.render(trace)))
    return found


def test_chrome_events_follow_the_format() -> None:
    """Every event has what its kind needs; threads and processes are named; microseconds."""
    document = chrome(made(recording()))
    assert document["otherData"]["start_unix_ns"] > 0
    needs = {
        "X": {"name", "ts", "dur", "pid", "tid"},
        "i": {"name", "ts", "pid", "tid", "s"},
        "C": {"name", "ts", "pid", "args"},
        "M": {"name", "pid", "args"},
        "s": {"id", "ts", "pid", "tid"},
        "f": {"id", "ts", "pid", "tid", "bp"},
    }
    events = document["traceEvents"]
    assert [e for e in events if not needs[e["ph"]] <= e.keys()] == []
    threads = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xi"} == threads
    reward = next(e for e in events if e["ph"] == "X" and e["name"] == "reward")
    assert (reward["ts"], reward["dur"]) == (4e6, 3e6)


def test_chrome_flows_start_before_they_end_inside_their_slices() -> None:
    """One start and one finish an id, the start first, both at the start of a slice on the same thread."""
    events = chrome(made(recording()))["traceEvents"]
    flows: dict[int, list[dict[str, Any]]] = {}
    for e in events:
        if e["ph"] in {"s", "f"}:
            flows.setdefault(e["id"], []).append(e)
    assert [[e["ph"] for e in pair] for pair in flows.values()] == [["s", "f"]] * 2
    starts = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    assert all((e["pid"], e["tid"], e["ts"]) in starts for pair in flows.values() for e in pair)
    assert all(a["ts"] <= b["ts"] for a, b in flows.values())


def test_chrome_holds_no_value_that_was_not_measured() -> None:
    """NaN is no JSON."""
    values = [
        v for e in chrome(made(recording()))["traceEvents"] if e["ph"] == "C" for v in e["args"].values()
    ]
    assert all(isinstance(v, float) for v in values)


def test_the_same_trace_gives_the_same_bytes() -> None:
    """No time of writing in the gzip header."""
    trace = made(recording())
    assert trace_chrome.render(trace) == trace_chrome.render(trace)


# --- Perfetto ---

perfetto = pytest.mark.skipif(
    not find_spec("perfetto"), reason="needs perfetto: pip install 'dipstick[perfetto]'"
)


def packets(trace: Trace) -> list[Any]:
    """What was written, read back by Perfetto's own schema."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Proto  # noqa: PLC0415 - an extra

    proto = Proto()
    proto.ParseFromString(trace_perfetto.render(trace))
    return list(proto.packet)


@perfetto
def test_every_event_is_on_a_described_track_in_order() -> None:
    """Parents are described, times never go back, and begin and end balance on each track."""
    read = packets(made(recording()))
    described = {p.track_descriptor.uuid: p.track_descriptor for p in read if p.HasField("track_descriptor")}
    assert all(d.parent_uuid in {0, *described} for d in described.values())
    events = [p for p in read if p.HasField("track_event")]
    assert {p.track_event.track_uuid for p in events} <= set(described)
    assert [p.timestamp for p in events] == sorted(p.timestamp for p in events)
    depth: dict[int, int] = {}
    for p in events:
        change = {1: 1, 2: -1}.get(p.track_event.type, 0)
        depth[p.track_event.track_uuid] = depth.get(p.track_event.track_uuid, 0) + change
        assert depth[p.track_event.track_uuid] >= 0
    assert set(depth.values()) == {0}


@perfetto
def test_perfetto_counters_have_units_and_slices_have_facts() -> None:
    """And each flow id stands on two slices."""
    read = packets(made(recording()))
    units = {
        p.track_descriptor.name: p.track_descriptor.counter.unit_name
        for p in read
        if p.track_descriptor.HasField("counter")
    }
    assert units == {"utilization.gpu": "%", "utilization.memory": "%", "memory allocated": "GiB"}
    jobs = [p.track_event for p in read if p.track_event.name.startswith("job ")]
    facts = {a.name: a.string_value or a.int_value or a.double_value for a in jobs[0].debug_annotations}
    assert facts == {"step": 0, "queued_ms": 500.0, "payload_bytes": 512, "payload_types": "list[str]"}
    flows = [i for p in read for i in p.track_event.flow_ids]
    assert sorted(flows) == [1, 1, 2, 2]


# --- tables ---


def test_the_timeline_holds_slices_and_values() -> None:
    """A value holds until the next one; the same columns in Parquet and CSV."""
    frame = trace_tables.timeline(made(recording()))
    reward = frame.filter((pl.col("track") == "phase") & (pl.col("name") == "reward")).row(0, named=True)
    assert (reward["kind"], reward["group"], reward["t0_s"], reward["t1_s"]) == ("slice", "rank 0", 4.0, 7.0)
    util = frame.filter(pl.col("track") == "utilization.gpu").row(0, named=True)
    assert (util["value"], util["unit"], util["t0_s"], util["t1_s"]) == (95.0, "%", near(0.0), near(0.2))
    assert pl.read_parquet(io.BytesIO(trace_tables.parquet(frame))).equals(frame)
    assert pl.read_csv(trace_tables.csv(frame)).columns == list(trace_tables.SCHEMA)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "  =HYPERLINK(0)"])
def test_no_cell_of_a_csv_is_a_formula(text: str) -> None:
    """An apostrophe stands in front; numbers keep their sign."""
    written = trace_tables.csv(pl.DataFrame({"name": [text, "plain"], "value": [-1.5, 2.0]}))
    read = pl.read_csv(written)
    assert read["name"][0].startswith("'")
    assert (read["name"][1], read["value"][0]) == ("plain", -1.5)


def test_parquet_keeps_what_csv_must_change() -> None:
    """It is no spreadsheet."""
    frame = pl.DataFrame({"name": ["=1+1"]})
    assert pl.read_parquet(io.BytesIO(trace_tables.parquet(frame)))["name"][0] == "=1+1"


# --- hostile names ---


def hostile() -> Recording:
    """Every recorded string is an attack."""
    spans: list[Row] = [row | {"file": EVIL, "detail": EVIL} for row in cycle(0, 0, 0.0, (4, 3, 2, 1))] + [
        span(EVIL, 1, 2)
    ]
    return recording(
        spans=spans,
        jobs=[job(EVIL, 5, 6) | {"payload_types": EVIL, "detail": EVIL}],
        events=[event(EVIL, 1.0)],
    )


def test_hostile_names_are_text_in_every_format() -> None:
    """Control characters go; JSON stays JSON, CSV stays one row a row."""
    trace = made(hostile())
    text = gzip.decompress(trace_chrome.render(trace)).decode()
    assert json.loads(text)
    assert not any(
        bad in json.dumps(json.loads(text), ensure_ascii=False) for bad in ("\x1b", "\u202e", "\x07")
    )
    frame = trace_tables.timeline(trace)
    assert pl.read_csv(trace_tables.csv(frame)).height == frame.height


@perfetto
def test_hostile_names_are_text_in_protobuf() -> None:
    """Read back whole."""
    assert any("alert(1)" in p.track_event.name for p in packets(made(hostile())))


def test_a_recording_without_names_can_be_analysed_and_holds_none() -> None:
    """The same seconds, under other names."""
    plain, hidden = recording(), without_names(recording())
    trace = made(hidden)
    text = gzip.decompress(trace_chrome.render(trace)).decode()
    assert ("ann" in text, "node1" in text, "folder1/train.py:12" in text) == (False, False, True)
    assert [(s.t0, s.t1) for s in trace.slices] == [(s.t0, s.t1) for s in made(plain).slices]


def test_what_a_worker_did_is_not_in_its_rank_s_tracks() -> None:
    """A reward worker inherited rank 0: its span is in no track of the rank, its event among those of nobody."""
    worker = process(7, rank=0, gpu=0, role="reward_worker")
    spans = [*cycle(0, 0, 0.0, (4, 3, 2, 1)), span("parse", 4, 5, rank=0) | {"pid": 7}]
    events = [event("gc", 4.5) | {"pid": 7, "rank": 0}, event("gc", 5.0) | {"pid": 900, "rank": 0}]

    tracks = named(
        made(recording(spans=spans, events=events, processes=[process(900, rank=0, gpu=0), worker]))
    )

    assert "parse" not in {
        one.name for path, slices in tracks.items() if path.startswith("rank 0") for one in slices
    }
    assert [one.t0 for one in tracks["rank 0/event gc"]] == [5 * 10**9]
    assert [one.t0 for one in tracks["events/event gc"]] == [45 * 10**8]
