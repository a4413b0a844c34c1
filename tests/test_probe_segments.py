"""Probe segments become tables: each line checked and bounded, jobs joined, clocks aligned, nothing trusted."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.clock import fit_clock
from dipstick.model import Note
from dipstick.recording import probe_jobs, probe_process, probe_segments
from dipstick.recording.probe_clock import align, fit
from dipstick.recording.probe_jobs import JobBook
from dipstick.recording.probe_lines import LONGEST_LINE, LONGEST_TEXT, ROWS, job_part, parse_line
from dipstick.recording.probe_process import ProbeData, ProbeProcess, process_rows
from dipstick.recording.probe_segments import SegmentFile, convert, segment_files
from dipstick.recording.reader import open_recording
from dipstick.recording.rows import to_frame
from dipstick.recording.schema import TABLES
from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dipstick.recording.reader import Recording

S = 1_000_000_000
UNIX = 1_796_053_319 * S
HOST = "node1"
MONO = 5000 * S
"""Where the host's monotonic clock stands when its Unix time is ``UNIX``."""


class Segment:
    """A segment as a probe writes it; times in seconds from ``MONO``."""

    def __init__(self, pid: int = 900, host: str = HOST, *, anchored: bool = True, **meta: Any) -> None:
        self.name = f"{host}.{pid}.{UNIX}.jsonl"
        self.lines: list[str] = []
        self.put("meta", host=host, pid=pid, **({"rank": 0} | meta))
        if anchored:
            self.anchor(0)

    def put(self, kind: str, **fields: Any) -> Segment:
        """A line."""
        self.lines.append(json.dumps({"k": kind, **fields}))
        return self

    def raw(self, *lines: str) -> Segment:
        """Lines as they are."""
        self.lines += lines
        return self

    def anchor(self, at: float, step: float = 0.0, **cost: int) -> Segment:
        """Both clocks at a time, after the wall clock was set by ``step``."""
        return self.put("anchor", m=MONO + round(at * S), u=UNIX + round((at + step) * S), **cost)

    def span(self, name: str, a: float, b: float, **more: Any) -> Segment:
        """A span of thread 1."""
        return self.put("span", n=name, a=MONO + round(a * S), b=MONO + round(b * S), tid=1, **more)

    def job(self, job: str, **fields: Any) -> Segment:
        """Either half of a job; times in seconds."""
        moved = {k: MONO + round(v * S) if k in {"a", "b", "submitted"} else v for k, v in fields.items()}
        return self.put("job", job=job, **moved)

    def text(self, cut: str = "") -> str:
        """The file's content, with half a line at the end if asked for."""
        return "".join(f"{line}\n" for line in self.lines) + cut


class Sink:
    """Keeps rows by table, and checks that they fit the schema."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def __call__(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        assert to_frame(table, list(rows)).height == len(rows)
        self.tables.setdefault(table, []).extend(rows)

    def seconds(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of a table; times as seconds from ``MONO``."""
        return [
            tuple(_seconds(name, row.get(name)) for name in columns) for row in self.tables.get(table, [])
        ]


def _seconds(name: str, value: Any) -> Any:
    return (value - MONO) / S if name.endswith("_ns") and value is not None else value


def write(folder: Path, *segments: Segment) -> list[SegmentFile]:
    folder.mkdir(exist_ok=True)
    for segment in segments:
        (folder / segment.name).write_text(segment.text())
    return segment_files(folder)


def converted(folder: Path, *segments: Segment) -> tuple[ProbeData, Sink]:
    sink = Sink()
    return convert(write(folder, *segments), sink), sink


# lines


def test_an_open_span_is_no_row_and_no_trouble(tmp_path: Path) -> None:
    """It is for a live view; the span itself comes when it ends."""
    segment = Segment().put("open", n="generate", a=MONO, tid=1).span("generate", 0, 2)
    data, sink = converted(tmp_path, segment)
    assert (sink.seconds("spans", "name", "t1_ns"), dict(data.skipped)) == ([("generate", 2.0)], {})


def test_a_span_becomes_a_row(tmp_path: Path) -> None:
    """Every field in its column; what has none goes to ``detail``; host, pid and rank are the segment's."""
    segment = Segment(rank=3).span(
        "GRPOTrainer.vLLM.generate", 1.0, 2.5, step=7, p="_prepare_inputs", ph="generate", f="t.py", l=40,
        x={"prompts": 32, "tokens_out": 4096, "pickled_b": 100, "jobs": 8},
    )  # fmt: skip
    _, sink = converted(tmp_path, segment)
    assert sink.tables["spans"] == [
        {
            "host": HOST, "pid": 900, "tid": 1, "rank": 3, "t0_ns": MONO + S, "t1_ns": MONO + 5 * S // 2,
            "phase": "generate", "name": "GRPOTrainer.vLLM.generate", "step": 7, "parent": "_prepare_inputs",
            "file": "t.py", "line": 40, "origin": "measured", "pickled_b": 100, "jobs": 8,
            "detail": '{"prompts": 32, "tokens_out": 4096}', "clock": 1,
        }
    ]  # fmt: skip


def test_a_phase_that_is_none_of_ours_is_left_to_the_name(tmp_path: Path) -> None:
    """The vocabulary is closed."""
    _, sink = converted(tmp_path, Segment().span("mine", 0, 1, ph="my phase").span("reward", 1, 2))
    assert sink.seconds("spans", "name", "phase") == [("mine", None), ("reward", None)]


def test_a_users_own_loop_can_number_its_steps(tmp_path: Path) -> None:
    """``dipstick.span("step", step=3)`` arrives as an extra; the framework's own number counts before it."""
    segment = Segment().span("step", 0, 1, x={"step": 3}).span("step", 1, 2, step=4, x={"step": 9})
    _, sink = converted(tmp_path, segment)
    assert sink.seconds("spans", "step", "detail") == [(3, None), (4, '{"step": 9}')]


def test_the_other_kinds_become_rows(tmp_path: Path) -> None:
    """Handoffs, collectives, events and scalars, each in its table."""
    segment = (
        Segment(rank=1)
        .put(
            "handoff", **{"from": "generate", "to": "reward"}, t=MONO + S, types=["list[str]", "dict"], count=64,
            bytes=212_000, device="host", transport="reference", f="t.py", l=9,
        )
        .put("coll", n="all_gather", a=MONO + S, b=MONO + 2 * S, device_ms=1.5)
        .put("event", n="checkpoint", a=MONO + S, b=MONO + 2 * S, step=5, detail={"bytes": 7})
        .put("event", n="gc", a=MONO + S)
        .put("scalar", n="reward", step=5, v=0.25, t=MONO + S)
    )  # fmt: skip
    data, sink = converted(tmp_path, segment)
    assert sink.seconds("handoffs", "from", "to", "types", "count", "bytes_b", "t_ns", "rank", "line") == [
        ("generate", "reward", "list[str], dict", 64, 212_000, 1.0, 1, 9)
    ]
    assert sink.seconds("collectives", "name", "entered_ns", "left_ns", "device_ms", "pid") == [
        ("all_gather", 1.0, 2.0, 1.5, 900)
    ]
    assert sink.seconds("events", "name", "t0_ns", "t1_ns", "step", "detail") == [
        ("checkpoint", 1.0, 2.0, 5, '{"bytes": 7}'),
        ("gc", 1.0, None, None, None),
    ]
    assert sink.seconds("scalars", "name", "step", "value", "t_ns") == [("reward", 5, 0.25, 1.0)]
    assert data.rows == {"handoffs": 1, "collectives": 1, "events": 2, "scalars": 1, "anchors": 1}
    assert not data.skipped


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not a JSON object with a kind, or too long"),
        ("[1, 2]", "not a JSON object with a kind, or too long"),
        ("7", "not a JSON object with a kind, or too long"),
        ('{"n": "x"}', "not a JSON object with a kind, or too long"),
        ('{"k": 5}', "not a JSON object with a kind, or too long"),
        ("\x00\x01", "not a JSON object with a kind, or too long"),
        ("[" * 100_000, "not a JSON object with a kind, or too long"),
        ('{"k": "span", "n": "' + "x" * LONGEST_LINE + '"}', "not a JSON object with a kind, or too long"),
        ('{"k": "span", "n": "x", "a": 1}', "a span without t0 or t1 or name"),
        ('{"k": "span", "n": "x", "a": "1", "b": 2}', "a span without t0 or t1 or name"),
        ('{"k": "span", "n": "x", "a": true, "b": 2}', "a span without t0 or t1 or name"),
        ('{"k": "span", "n": "x", "a": 1, "b": 99999999999999999999}', "a span without t0 or t1 or name"),
        ('{"k": "span", "n": "x", "a": ' + "9" * 5000 + "}", "not a JSON object with a kind, or too long"),
        ('{"k": "span", "n": ["x"], "a": 1, "b": 2}', "a span without t0 or t1 or name"),
        ('{"k": "scalar", "n": "x", "v": NaN}', "a scalar without name or value"),
        ('{"k": "scalar", "n": "x", "v": 1e999}', "a scalar without name or value"),
        ('{"k": "handoff", "t": null}', "a handoff without t"),
        ('{"k": "coll", "n": "", "a": 1}', "a coll without entered or name"),
        ('{"k": "job", "a": 1, "b": 2}', "a job without id"),
        ('{"k": "anchor", "m": -5, "u": 1}', "an anchor without both times, or one too many"),
        ('{"k": "telepathy"}', "of an unknown kind (written by a newer probe?)"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_what_it_should_be_is_skipped_and_counted(
    line: str, reason: str, tmp_path: Path
) -> None:
    """The lines around it are read; the reader of the recording is told."""
    data, sink = converted(tmp_path, Segment().raw(line).span("after", 0, 1))
    assert data.skipped[reason] == data.skipped.total() > 0
    assert sink.seconds("spans", "name") == [("after",)]
    assert Note("warning", f"probe segments: {data.skipped[reason]} lines skipped: {reason}") in data.notes


def test_optional_fields_of_a_wrong_type_are_missing(tmp_path: Path) -> None:
    """The row stays; a wrong step is no step, a negative size no size."""
    segment = Segment().span("x", 0, 1, step="3", l=2**40, f=5, p=None, x={"pickled_b": -1, "jobs": 1.5})
    _, sink = converted(tmp_path, segment)
    assert sink.seconds("spans", "step", "line", "file", "parent", "pickled_b", "jobs") == [(None,) * 6]


def test_text_is_bounded_and_storable(tmp_path: Path) -> None:
    """Half a surrogate pair can't be stored; a name of a megabyte would be repeated a million times."""
    segment = Segment().raw('{"k":"span","n":"a\\ud800b","a":1,"b":2,"f":"' + "y" * 5000 + '"}')
    _, sink = converted(tmp_path, segment)
    (name, file), *_ = sink.seconds("spans", "name", "file")
    assert name == "a?b"
    assert file == "y" * LONGEST_TEXT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "n", "a", "b", "tid", "step", "p", "ph", "f", "l", "x", "job", "submitted", "pid", "rank", "payload_b",
    "payload_types", "result_b", "detail", "from", "to", "t", "types", "count", "bytes", "device", "transport",
    "device_ms", "v", "m", "u", "hooks", "versions", "role", "why", "coll", "i",
]  # fmt: skip


@given(
    st.sampled_from([*ROWS, "job", "anchor", "device", "meta", "hooks", "dropped", "capped", "end", "other"]),
    st.dictionaries(st.sampled_from(KEYS), JSON),
)
def test_no_line_breaks_the_conversion(kind: str, fields: dict[str, Any]) -> None:
    """Whatever JSON it holds, it becomes rows that fit the schema, or is skipped."""
    sink = Sink()
    work = probe_segments._Conversion(sink)
    process = ProbeProcess(HOST, 1, 1)
    work.data.processes.append(process)
    work._anchors[HOST] = {1: []}
    line = parse_line(json.dumps({**fields, "k": kind}).encode())
    assert line is not None
    work._take(line, process)
    work.finish()
    sink("processes", process_rows(work.data))


def test_what_a_rank_started_inherits_its_number_and_is_a_worker(tmp_path: Path) -> None:
    """By its parent's spans, also through a forkserver without any; a launcher with RANK in its environment is no rank."""
    segments = [
        Segment(1, rank=0),  # a launcher: no spans
        Segment(2, rank=0, ppid=1).span("generate", 0, 1),
        Segment(3, rank=0, ppid=2),  # a forkserver
        Segment(4, rank=0, ppid=3).span("parse", 0, 1),
        Segment(5, rank=0, ppid=2, role="engine").span("generate", 0, 1),
        Segment(6, rank=1, ppid=2).span("generate", 0, 1),
        Segment(7, rank=0, ppid=7).span("generate", 0, 1),  # its own parent: hostile
    ]
    data, _ = converted(tmp_path, *segments)
    assert [(p.pid, p.role) for p in data.processes] == [
        (1, None), (2, "trainer"), (3, None), (4, "worker"), (5, "engine"), (6, "trainer"), (7, "trainer"),
    ]  # fmt: skip


def test_steps_are_counted_for_the_account(tmp_path: Path) -> None:
    """Numbered step spans and how long they took, beside what the probe says it cost."""
    segment = Segment().span("step", 0, 2, step=0).span("step", 2, 5, step=1).span("step", 5, 9)
    data, _ = converted(tmp_path, segment.anchor(9, rows=3, span_ns=2000, hook_ns=10, writer_ns=-1))
    assert data.accounts == [
        {
            "pid": 900,
            "rank": 0,
            "role": "trainer",
            "steps": 2,
            "step_ns": 5 * S,
            "ended": False,
            "rows": 3,
            "span_ns": 2000,
            "hook_ns": 10,
        }
    ]


def test_items_of_a_map_that_no_worker_ran_are_counted(tmp_path: Path) -> None:
    """The parent knows of them by what it sent: eight crossed, six ran."""
    parent = Segment(1).put("handoff", t=MONO, **{"from": "reward", "to": "workers"}, count=8)
    parent.put("handoff", t=MONO, **{"from": "generate", "to": "reward"}, count=100)
    worker = Segment(2)
    for i in range(6):
        worker.job(f"m.2.{i}", a=i, b=i + 1, submitted=0)
    data, _ = converted(tmp_path, parent, worker)
    assert data.unmatched_jobs == 2


def test_device_times_join_their_collectives(tmp_path: Path) -> None:
    """By number, within a process; one that nobody read, and one that is no number, are not known."""
    one = (
        Segment(1)
        .put("coll", n="all_reduce", a=MONO, b=MONO + 1, i=1)
        .put("coll", n="barrier", a=MONO, b=MONO, i=2)
    )
    one.put("device", coll=[[1, 7.5], [9, 1.0], "x", [2], [2, "y"]])
    other = Segment(2).put("coll", n="all_gather", a=MONO, b=MONO, i=1).put("device", coll=7)
    _, sink = converted(tmp_path, one, other)
    assert sorted(sink.seconds("collectives", "name", "device_ms", "pid")) == [
        ("all_gather", None, 2), ("all_reduce", 7.5, 1), ("barrier", None, 1),
    ]  # fmt: skip


def test_collectives_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes without its device time."""
    monkeypatch.setattr(probe_segments, "MOST_COLLECTIVES", 2)
    segment = Segment()
    for i in range(4):
        segment.put("coll", n=str(i), a=MONO, b=MONO, i=i)
    _, sink = converted(tmp_path, segment.put("device", coll=[[0, 1.0], [3, 4.0]]))
    assert sink.seconds("collectives", "name", "device_ms") == [
        ("0", None),
        ("1", None),
        ("3", 4.0),
        ("2", None),
    ]


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(raw: bytes) -> None:
    """They are an object with a kind or nothing."""
    line = parse_line(raw)
    assert line is None or isinstance(line["k"], str)


# files


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    """The process was killed in the middle of a write: that is normal, and no damage."""
    segment = Segment().span("whole", 0, 1)
    (tmp_path / segment.name).write_text(segment.text('{"k":"span","n":"cut","a":1,'))
    sink = Sink()
    data = convert(segment_files(tmp_path), sink)
    assert sink.seconds("spans", "name") == [("whole",)]
    assert not data.skipped


def test_only_segments_are_read(tmp_path: Path) -> None:
    """By name; no links, no folders, nothing else that lies there."""
    segment = Segment(pid=7)
    (tmp_path / "elsewhere").write_text(segment.text())
    (tmp_path / segment.name).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "node1.8.9.jsonl").mkdir()
    for name in ("notes.txt", "node1.x.9.jsonl", "node1.1.2.jsonl.tmp", ".1.2.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "a.host.with.dots.12.34.jsonl").touch()
    assert [(f.host, f.pid) for f in segment_files(tmp_path)] == [("a.host.with.dots", 12)]


def test_a_folder_that_is_a_link_or_absent_has_no_segments(tmp_path: Path) -> None:
    """A shared run folder may hold a trap."""
    write(tmp_path / "real", Segment())
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert (segment_files(tmp_path / "link"), segment_files(tmp_path / "none")) == ([], [])


def test_a_segment_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    """Between listing and opening."""
    (file,) = write(tmp_path, Segment().span("x", 0, 1))
    file.path.rename(tmp_path / "moved")
    file.path.symlink_to(tmp_path / "moved")
    data = convert([file], Sink())
    assert data.processes == []
    assert [note.text.startswith(f"probe/{file.path.name} can't be read") for note in data.notes] == [True]


def test_a_pipe_does_not_hang_the_reader(tmp_path: Path) -> None:
    """Only regular files are read."""
    (file,) = write(tmp_path, Segment())
    file.path.unlink()
    os.mkfifo(file.path)
    assert "it is no regular file" in convert([file], Sink()).notes[0].text


def test_too_many_segments_are_not_all_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clock numbers have 16 bits; what is left out is said."""
    monkeypatch.setattr(probe_segments, "MOST_SEGMENTS", 2)
    data, _ = converted(tmp_path, *(Segment(pid=pid) for pid in range(5)))
    assert len(data.processes) == 2
    assert Note("warning", "3 of 5 probe segments were not read: too many") in data.notes


def test_rows_go_to_the_sink_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of 256 MB must not be in memory at once."""
    monkeypatch.setattr(probe_segments, "BATCH", 10)
    segment = Segment()
    for i in range(25):
        segment.span("x", i, i + 1)
    sizes: list[int] = []
    convert(
        write(tmp_path, segment), lambda table, rows: sizes.append(len(rows)) if table == "spans" else None
    )
    assert sizes == [10, 10, 5]


def test_a_segment_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe stops at its own cap long before; a file that does not is not ours."""
    segment = Segment()
    for i in range(100):
        segment.span("x", i, i + 1)
    monkeypatch.setattr(probe_segments, "MOST_BYTES", len(segment.text()) // 2)
    data, _ = converted(tmp_path, segment)
    assert 40 < data.rows["spans"] < 60


# processes


def test_a_process_is_described_by_its_meta_lines(tmp_path: Path) -> None:
    """The last word counts; what a later line does not say stays."""
    segment = Segment(rank=None, python="3.11.7", versions={"trl": "1.16.0", "bad": 5}, role="")
    segment.put("meta", rank=2, local_rank=1, role="trainer+engine", versions={"vllm": "0.25.1"}).put("end")
    data, sink = converted(tmp_path, segment)
    (process,) = data.processes
    assert (process.rank, process.local_rank, process.role) == (2, 1, "trainer+engine")
    assert (process.python, process.versions) == ("3.11.7", {"trl": "1.16.0", "vllm": "0.25.1"})
    assert process_rows(data) == [
        {"host": HOST, "pid": 900, "role": "trainer+engine", "rank": 2, "source": "probe"}
    ]
    assert "processes" not in sink.tables, "the supervisor knows more, and writes them"


def test_roles_that_the_probe_does_not_know_follow_from_what_was_done(tmp_path: Path) -> None:
    """Who ran jobs is a reward worker of the rank that fed it; who has a rank and spans a trainer; others are other."""
    trainer = Segment(pid=1, rank=4).span("step", 0, 9).job("j1", submitted=1, rank=4)
    worker = Segment(pid=2, rank=None).job("j1", a=2, b=3)
    loader = Segment(pid=3, rank=4)
    data, _ = converted(tmp_path, trainer, worker, loader)
    assert [(row["pid"], row["role"], row["rank"]) for row in process_rows(data)] == [
        (1, "trainer", 4),
        (2, "reward_worker", 4),
        (3, "other", 4),
    ]
    assert data.workers == {(HOST, 2): 4}


def test_hooks_keep_the_last_word_on_each_target(tmp_path: Path) -> None:
    """A module that is imported later binds what did not bind before."""
    bound = {"target": "trl.GRPOTrainer.log", "bound": True, "version": "1.16.0"}
    segment = Segment().put(
        "hooks", hooks=[bound | {"bound": False, "why": "not imported"}, 5, {"bound": True}]
    )
    segment.put(
        "hooks", hooks=[bound, {"target": "vllm.LLM.sleep", "bound": False, "why": "no such attribute"}]
    )
    data, _ = converted(tmp_path, segment)
    hooks = data.processes[0].hooks
    assert {name: (hook.bound, hook.why, hook.version) for name, hook in hooks.items()} == {
        "trl.GRPOTrainer.log": (True, None, "1.16.0"),
        "vllm.LLM.sleep": (False, "no such attribute", None),
    }


def test_hooks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that lists a million targets is not a probe's."""
    monkeypatch.setattr(probe_process, "MOST_HOOKS", 3)
    data, _ = converted(
        tmp_path, Segment().put("hooks", hooks=[{"target": f"t{i}", "bound": True} for i in range(9)])
    )
    assert len(data.processes[0].hooks) == 3


def test_the_probes_own_cost_is_its_last_word(tmp_path: Path) -> None:
    """Anchors carry it; what is no count is left out."""
    segment = Segment().anchor(1, rows=10, span_ns=900).anchor(2, rows=20, hook_ns=5, writer_ns=-1)
    data, _ = converted(tmp_path, segment)
    assert data.processes[0].cost == {"rows": 20, "span_ns": 900, "hook_ns": 5}


def test_what_went_wrong_is_said(tmp_path: Path) -> None:
    """Lost rows, caps, full disks, a killed rank; a worker that was killed is only counted."""
    data, _ = converted(
        tmp_path,
        Segment(pid=1, rank=0, role="trainer")
        .span("s", 0, 1)
        .put("dropped", count=5)
        .put("dropped", count="x"),
        Segment(pid=2, rank=1).put("capped", why="size"),
        Segment(pid=3, rank=None, role="engine").put("capped", why="disk"),
        Segment(pid=4, rank=None),
        Segment(pid=5, rank=2).span("s", 0, 1).put("end"),
    )
    assert data.dropped == 5
    assert [note.text for note in data.notes] == [
        "the probes' buffers overflowed: 5 rows are lost",
        "process 2 on node1 (rank 1) reached its size cap (DIPSTICK_PROBE_MAX_MB): what came after is missing",
        "process 3 on node1 (engine) found the disk full: what came after is missing",
        "process 1 on node1 (trainer, rank 0) did not end by itself (killed, or still running): at most its last second is missing",
        "1 other processes did not end by themselves: at most their last second is missing",
    ]


# jobs


def test_the_halves_of_a_job_are_joined(tmp_path: Path) -> None:
    """The parent knows when it was submitted and what crossed, the worker when it ran and what it gave back."""
    parent = Segment(pid=1, rank=1).job(
        "j1", submitted=1.0, step=7, rank=1, payload_b=4000, payload_types="list[str]", detail="relax"
    )
    worker = Segment(pid=2, rank=0).job("j1", a=2.0, b=3.5, pid=2).job("j1", result_b=88)
    data, sink = converted(tmp_path, parent, worker)
    assert sink.tables["jobs"] == [
        {
            "host": HOST, "rank": 1, "pid": 2, "job": "j1", "step": 7, "submitted_ns": MONO + S,
            "t0_ns": MONO + 2 * S, "t1_ns": MONO + 7 * S // 2, "payload_b": 4000, "payload_types": "list[str]",
            "result_b": 88, "detail": "relax", "clock": 2,
        }
    ]  # fmt: skip
    assert (data.unmatched_jobs, data.rows["jobs"]) == (0, 1)


def test_the_order_of_the_halves_does_not_matter(tmp_path: Path) -> None:
    """The worker's segment may come first; the rank is the parent's, not the one that the worker inherited."""
    worker = Segment(pid=1, rank=0).job("j1", a=2, b=3)
    parent = Segment(pid=2, rank=1).job("j1", submitted=1, rank=1)
    _, sink = converted(tmp_path, worker, parent)
    assert sink.seconds("jobs", "rank", "pid", "submitted_ns", "t0_ns", "clock") == [(1, 1, 1.0, 2.0, 1)]


def test_a_job_that_no_worker_spoke_of_cannot_be_placed(tmp_path: Path) -> None:
    """It is counted: the workers have no probe."""
    data, sink = converted(tmp_path, Segment().job("j1", submitted=1).job("j2", submitted=2, a=3))
    assert "jobs" not in sink.tables
    assert data.unmatched_jobs == 2
    text = "2 reward jobs were submitted and no worker spoke of them: when they ran is not known (the worker was killed, or has no probe)"
    assert Note("warning", text) in data.notes


def test_a_job_whose_submission_was_not_seen_is_kept(tmp_path: Path) -> None:
    """When it ran is what counts."""
    _, sink = converted(tmp_path, Segment(pid=2, rank=None).job(17, a=2, b=3))  # type: ignore[arg-type] # ids may be numbers
    assert sink.seconds("jobs", "job", "rank", "submitted_ns", "t1_ns") == [("17", None, None, 3.0)]


def test_jobs_of_two_hosts_with_one_id_are_two_jobs(tmp_path: Path) -> None:
    """Ids are unique on a host."""
    halves = [Segment(pid=pid, host=host).job("j1", a=pid, b=pid + 1) for pid, host in ((1, "a"), (2, "b"))]
    _, sink = converted(tmp_path, *halves)
    assert sink.seconds("jobs", "host", "t0_ns") == [("a", 1.0), ("b", 2.0)]


def test_a_submission_is_moved_to_the_workers_clock() -> None:
    """Two clocks of their own (containers): 10 s on the parent's is 1010 s Unix, and 510 s on the worker's."""
    book = JobBook()
    book.add(HOST, 1, 0, 1, job_part({"job": "j", "submitted": 10 * S}) or {})
    book.add(HOST, 2, 0, 2, job_part({"job": "j", "a": 511 * S, "b": 512 * S}) or {})
    clocks = {1: fit([(0, 1000 * S)]), 2: fit([(0, 500 * S)])}
    assert [row["submitted_ns"] for row in book.rows(clocks)] == [510 * S]
    assert [row["submitted_ns"] for row in book.rows({2: clocks[2]})] == [None], "a clock without anchors"


def test_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What comes after the limit is counted, not kept; halves of known jobs still join."""
    monkeypatch.setattr(probe_jobs, "MOST_JOBS", 1)
    segment = Segment().job("j1", submitted=1).job("j2", a=1, b=2).job("j1", a=2, b=3)
    data, sink = converted(tmp_path, segment)
    assert sink.seconds("jobs", "job") == [("j1",)]
    assert Note("warning", "1 job records were not kept: too many") in data.notes


# clocks


def test_a_process_that_started_after_a_clock_step_is_placed_right() -> None:
    """The worked example: process 1 saw the step of an hour, process 2 only the time after it."""
    anchors = {1: [(0, 1000 * S), (60 * S, 4660 * S)], 2: [(70 * S, 4670 * S)]}
    aligned, common = align(anchors)
    assert aligned == {1: [(0, 1000 * S), (60 * S, 1060 * S)], 2: [(70 * S, 1070 * S)]}
    assert common is not None
    assert [step.step_ns for step in common.steps] == [3600 * S]


def test_processes_that_share_no_clock_are_left_alone() -> None:
    """Two machines with one host name: days between their monotonic clocks are no step of the wall clock."""
    anchors = {1: [(5 * S, 1000 * S)], 2: [(900_000 * S, 1001 * S)]}
    assert align(anchors) == (anchors, None)


def test_a_host_without_anchors_has_no_clock() -> None:
    """Its rows can't be placed; the reader says so."""
    assert align({1: []}) == ({1: []}, None)
    assert align({1: [], 2: [(0, S)]})[0] == {1: [], 2: [(0, S)]}


def test_drift_is_kept() -> None:
    """100 ppm over a minute is no step."""
    anchors = [(i * 60 * S, 1000 * S + i * 60_006_000_000) for i in range(5)]
    aligned, common = align({1: anchors})
    assert aligned == {1: anchors}
    assert common is not None
    assert common.steps == fit_clock(*map(np.array, zip(*anchors, strict=True))).steps == ()


def test_anchors_are_written_for_each_segments_clock(tmp_path: Path) -> None:
    """With a note where the wall clock was set."""
    first = Segment(pid=1).anchor(60, step=30).put("end")
    late = Segment(pid=2, anchored=False).anchor(70, step=30).put("end")
    data, sink = converted(tmp_path, first, late)
    assert sink.seconds("anchors", "clock", "pid", "mono_ns") == [(1, 1, 0.0), (1, 1, 60.0), (2, 2, 70.0)]
    assert [row["unix_ns"] - UNIX for row in sink.tables["anchors"]] == [0, 60 * S, 70 * S]
    at = (UNIX + 60 * S) / 1e9 - 60
    text = f"the wall clock of node1 was set by +30.000 s at Unix {at:.3f}; removed from the time axis of its processes"
    assert data.notes == [Note("warning", text)]


def test_anchors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One a minute for two months."""
    monkeypatch.setattr(probe_segments, "MOST_ANCHORS", 2)
    data, sink = converted(tmp_path, Segment().anchor(60).anchor(120))
    assert len(sink.tables["anchors"]) == 2
    assert data.skipped["an anchor without both times, or one too many"] == 1


# in the reader


def recording(folder: Path, *segments: Segment, converted_names: Sequence[str] = ()) -> Recording:
    """A run whose supervisor was killed: no table, only segments."""
    writer = RecordingWriter.create(folder / "R", origin="measured", host=HOST, writer="run_1")
    if converted_names:
        writer.set_info(**{"segments@run_1": list(converted_names)})
        writer.close()
    write(folder / "R/probe", *segments)
    return open_recording(folder / "R")


def test_segments_that_were_never_converted_are_read_where_they_are(tmp_path: Path) -> None:
    """Spans, jobs and who is who, on one time axis."""
    opened = recording(
        tmp_path,
        Segment(pid=1, rank=0).span("step", 0, 10).job("j", submitted=2, rank=0),
        Segment(pid=2, rank=None).job("j", a=3, b=4),
    )
    assert (opened.start_unix_ns, opened.end_unix_ns) == (UNIX, UNIX + 10 * S)
    assert opened.table("spans", columns=("name", "t0_ns", "t1_ns", "rank")).rows() == [
        ("step", 0, 10 * S, 0)
    ]
    assert opened.table("jobs", columns=("pid", "submitted_ns", "t0_ns")).rows() == [(2, 2 * S, 3 * S)]
    assert opened.table("processes", columns=("pid", "role", "rank")).rows() == [
        (1, "trainer", 0),
        (2, "reward_worker", 0),
    ]
    assert any("did not end by itself" in note.text for note in opened.notes)
    assert opened.scan("spans").collect().height == 1


def test_converted_segments_are_not_read_twice(tmp_path: Path) -> None:
    """They lie there if the supervisor was killed between closing the tables and removing them."""
    done, left = Segment(pid=1).span("done", 0, 1), Segment(pid=2).span("left", 1, 2)
    opened = recording(tmp_path, done, left, converted_names=[done.name])
    assert opened.table("spans")["name"].to_list() == ["left"]


def test_a_run_that_goes_on_can_be_read_again_and_again(tmp_path: Path) -> None:
    """Each time with what was written meanwhile."""
    segment = Segment().span("first", 0, 1)
    assert recording(tmp_path, segment).table("spans").height == 1
    write(tmp_path / "R/probe", segment.span("second", 1, 2))
    assert open_recording(tmp_path / "R").table("spans").height == 2


def test_a_segment_without_anchors_cannot_be_placed(tmp_path: Path) -> None:
    """Its rows are dropped with a note; another process's are fine."""
    opened = recording(
        tmp_path, Segment(pid=1, anchored=False).span("lost", 0, 1), Segment(pid=2, rank=1).span("kept", 0, 1)
    )
    assert opened.table("spans")["name"].to_list() == ["kept"]
    assert any("stamped by a clock without anchors" in note.text for note in opened.notes)


def test_a_step_of_the_wall_clock_moves_nothing(tmp_path: Path) -> None:
    """A worker that started after it lies where it ran."""
    opened = recording(
        tmp_path,
        Segment(pid=1, rank=0).span("step", 0, 100).anchor(60, step=-1800),
        Segment(pid=2, anchored=False, rank=None).anchor(70, step=-1800).job("j", a=71, b=72),
    )
    assert opened.table("jobs", columns=("t0_ns", "t1_ns")).rows() == [(71 * S, 72 * S)]


def test_every_table_of_a_segment_is_one_of_the_schema() -> None:
    """And its columns, too (the sink of these tests checks that with each row)."""
    assert {table for table, *_ in ROWS.values()} | {"jobs", "anchors", "processes"} <= TABLES.keys()
