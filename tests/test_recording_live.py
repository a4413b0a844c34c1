"""A run that goes on, looked at again and again: streams and segments joined on one axis, in bounded memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from dipstick.recording import live_segment, live_streams
from dipstick.recording.live import LiveRun, last_written_ns
from dipstick.recording.window import Health, ProbeCost
from dipstick.recording.writer import RecordingWriter
from records import HOST, UNIX_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dipstick.recording.window import Window

    Begin = Callable[..., "Run"]

S = 1_000_000_000
MONO = 5000 * S
"""Where the host's monotonic clock stands at ``UNIX_NS``, the recording's creation."""


def mono(seconds: float) -> int:
    return MONO + round(seconds * S)


class Run:
    """A run as it is written: ``sampler`` is the real writer, ``probe`` appends lines."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.sampler = RecordingWriter.create(
            folder, origin="measured", host=HOST, writer="sampler", created_unix_ns=UNIX_NS, **options
        )
        self.sampler.append(
            "anchors", [{"clock": 1, "host": HOST, "pid": 1, "mono_ns": MONO, "unix_ns": UNIX_NS}]
        )
        self.live = LiveRun(folder, "RUN")
        (folder / "probe").mkdir()

    def poll(self, *at: float, util: float = 50.0) -> None:
        """Polls of GPU 0, flushed."""
        self.sampler.append(
            "gpu",
            [
                {"host": HOST, "gpu": 0, "t_ns": mono(t), "source": "poll", "util_pct": util, "clock": 1}
                for t in at
            ],
        )
        self.sampler.flush()

    def probe(self, pid: int, *lines: dict[str, Any], cut: str = "") -> Path:
        path = self.folder / "probe" / f"{HOST}.{pid}.{UNIX_NS}.jsonl"
        if not path.exists():
            head = [{"k": "meta", "rank": pid - 900}, {"k": "anchor", "m": MONO, "u": UNIX_NS}]
            lines = (*head, *lines)
        with path.open("a") as stream:
            stream.write("".join(json.dumps(line) + "\n" for line in lines) + cut)
        return path

    def window(self, t: float) -> Window:
        """Look, then what is known at a second."""
        self.live.look()
        return self.live.window(UNIX_NS + round(t * S))


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Begins runs; they end with the test."""
    made: list[Run] = []

    def one(**options: Any) -> Run:
        made.append(Run(tmp_path / f"R{len(made)}", **options))
        return made[-1]

    yield one
    for run in made:
        run.sampler.close()


def span(name: str, a: float, b: float, **more: Any) -> dict[str, Any]:
    return {"k": "span", "n": name, "a": mono(a), "b": mono(b), "tid": 1} | more


def opened(name: str, a: float, **more: Any) -> dict[str, Any]:
    return {"k": "open", "n": name, "a": mono(a), "tid": 1} | more


def job(name: str, **times: Any) -> dict[str, Any]:
    moved = {k: mono(v) if k in {"a", "b", "submitted"} else v for k, v in times.items()}
    return {"k": "job", "job": name} | moved


def seconds(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of a table, times in seconds."""
    shown = [
        (pl.col(c) / S).round(6).alias(c)
        if c.endswith("_ns")
        else pl.col(c).cast(pl.String)
        if c == "name"
        else c
        for c in columns
    ]
    return frame.select(shown).rows()


def test_a_run_that_has_recorded_nothing_is_a_window_without_rows(begin: Begin) -> None:
    """A second after its start there may be no row."""
    found = begin().window(1.0)
    assert (found.mode, found.sampled_ns, found.t_ns) == ("recording", None, S)
    assert [found.table(name).height for name in ("gpu", "spans", "jobs", "processes", "host_process")] == [
        0
    ] * 5


def test_samples_appear_as_they_are_flushed(begin: Begin) -> None:
    """Times are seconds since the creation, converted by the sampler's own anchors."""
    run = begin()
    run.poll(1.0, 1.1)
    assert seconds(run.window(1.5).table("gpu"), "t_ns", "util_pct") == [(1.0, 50.0), (1.1, 50.0)]
    run.poll(1.2, util=70.0)
    found = run.window(1.5)
    assert seconds(found.table("gpu"), "t_ns", "util_pct")[-1] == (1.2, 70.0)
    assert found.sampled_ns == 1.2 * S


def test_what_was_not_known_yet_is_left_out(begin: Begin) -> None:
    """Held back to 1.05 s, the view does not show the sample of 1.1 s."""
    run = begin()
    run.poll(1.0, 1.1)
    assert run.window(1.05).table("gpu").height == 1


def test_only_the_last_minutes_are_kept(begin: Begin) -> None:
    """A day of polls is no more than three minutes of them in memory."""
    run = begin()
    run.poll(*range(1, 1000))
    assert seconds(run.window(1000).table("gpu"), "t_ns")[0] == (819.0,)


def test_a_stream_that_became_a_part_loses_nothing(begin: Begin) -> None:
    """The writer turns a full segment into Parquet between two looks: the rest is read from there, nothing twice."""
    run = begin(segment_rows=4)
    run.poll(1, 2)
    run.window(2)
    run.poll(3, 4)  # full: now a part, and its stream is gone
    run.poll(5)
    assert [t for (t,) in seconds(run.window(6).table("gpu"), "t_ns")] == [1, 2, 3, 4, 5]
    assert [t for (t,) in seconds(run.window(6).table("gpu"), "t_ns")] == [1, 2, 3, 4, 5]


def test_parts_from_before_the_first_look_are_left_alone(begin: Begin) -> None:
    """Hours of finished parts are not read; the small tables are."""
    run = begin(segment_rows=2)
    run.sampler.append("gpus", [{"host": HOST, "gpu": 0, "name": "H200"}] * 2)
    run.poll(1, 2)
    run.poll(3)
    found = LiveRun(run.folder, "RUN")
    found.look()
    window = found.window(UNIX_NS + 4 * S)
    assert [t for (t,) in seconds(window.table("gpu"), "t_ns")] == [3]
    assert window.table("gpus")["name"].to_list() == ["H200"]


def test_rows_are_bounded_whatever_their_times_say(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken clock that stands still must not fill the memory."""
    monkeypatch.setattr(live_streams, "MOST_ROWS", 10)
    run = begin()
    run.poll(*(1 + i / 1000 for i in range(50)))
    assert run.window(2).table("gpu").height == 10


def test_ended_and_open_spans_are_one_table(begin: Begin) -> None:
    """An open span has no end; when it ends, it is one row, not two."""
    run = begin()
    run.probe(900, span("generate", 1, 2, step=3), opened("reward", 2, step=3), cut='{"k":"sp')
    columns = ("name", "t0_ns", "t1_ns", "step", "rank", "pid")
    assert seconds(run.window(3).table("spans"), *columns) == [
        ("generate", 1.0, 2.0, 3, 0, 900),
        ("reward", 2.0, None, 3, 0, 900),
    ]
    with next((run.folder / "probe").iterdir()).open("a") as stream:
        stream.write('an"}\n')
    run.probe(900, span("reward", 2, 4, step=3))
    assert seconds(run.window(5).table("spans"), *columns)[1:] == [("reward", 2.0, 4.0, 3, 0, 900)]


def test_an_open_span_whose_end_was_lost_ends_with_the_one_around_it(begin: Begin) -> None:
    """The ring buffer may drop a row; of another thread nothing is concluded."""
    run = begin()
    run.probe(900, opened("step", 1), opened("reward", 2), opened("other", 2.5, tid=2), span("step", 1, 4))
    assert seconds(run.window(5).table("spans"), "name", "t1_ns") == [("step", 4.0), ("other", None)]


def test_a_process_that_ended_is_inside_of_nothing(begin: Begin) -> None:
    """What was open when it ended in good order is over."""
    run = begin()
    run.probe(900, opened("generate", 1), {"k": "end"})
    assert run.window(2).table("spans").is_empty()


def test_a_rank_that_is_known_later_counts_for_all_its_spans(begin: Begin) -> None:
    """The process group is made after the first spans; the line that says so comes again."""
    run = begin()
    path = run.folder / "probe" / f"{HOST}.7.{UNIX_NS}.jsonl"
    path.write_text(
        "\n".join(
            json.dumps(line)
            for line in (
                {"k": "meta", "pid": 7},
                {"k": "anchor", "m": MONO, "u": UNIX_NS},
                span("generate", 1, 2),
                {"k": "meta", "pid": 7, "rank": 3, "role": "trainer"},
            )
        )
        + "\n"
    )
    found = run.window(3)
    assert found.table("spans")["rank"].to_list() == [3]
    assert found.table("processes").select("pid", "rank", pl.col("role").cast(pl.String)).rows() == [
        (7, 3, "trainer")
    ]


def test_jobs_are_joined_from_both_sides(begin: Begin) -> None:
    """The trainer says when and for which step, the worker when it ran; one is still waiting."""
    run = begin()
    run.probe(901, job("a", submitted=1, step=4), job("b", submitted=1.1, step=4))
    worker = run.probe(950, job("a", a=1.2, b=2.2))
    worker.write_text(worker.read_text().replace('"rank": 50', '"rank": null'))
    columns = ("job", "rank", "step", "pid", "submitted_ns", "t0_ns", "t1_ns")
    assert seconds(run.window(3).table("jobs"), *columns) == [
        ("a", 1, 4, 950, 1.0, 1.2, 2.2),
        ("b", 1, 4, None, 1.1, None, None),
    ]


def test_only_the_last_spans_and_jobs_of_a_process_are_kept(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a process writes, the view holds a bounded part of it."""
    monkeypatch.setattr(live_segment, "MOST_JOBS", 3)
    monkeypatch.setattr(live_segment, "MOST_OPEN", 2)
    run = begin()
    many = range(live_segment.MOST_SPANS + 5)
    run.probe(900, *(span("s", 1 + i / 1000, 1 + i / 1000) for i in many))
    run.probe(
        900, *(job(str(i), submitted=i) for i in range(1, 9)), *(opened(str(i), 100 + i) for i in range(9))
    )
    found = run.window(200)
    assert found.table("spans")["t1_ns"].is_not_null().sum() == live_segment.MOST_SPANS
    assert seconds(found.table("spans"), "name")[-2:] == [("7",), ("8",)]
    assert found.table("jobs")["job"].to_list() == ["6", "7", "8"]


def test_a_process_without_a_clock_cannot_be_placed(begin: Begin) -> None:
    """Its spans are left out, not shown at a wrong time."""
    run = begin()
    (run.folder / "probe" / f"{HOST}.7.{UNIX_NS}.jsonl").write_text(json.dumps(span("generate", 1, 2)) + "\n")
    assert run.window(3).table("spans").is_empty()


def test_hostile_lines_are_passed_over(begin: Begin) -> None:
    """Anything that is not what it should be costs itself."""
    run = begin()
    run.probe(
        900,
        {"k": "span", "n": "x", "a": "soon", "b": None}, {"k": "open", "n": 3, "a": 1}, {"k": "job"}, {"k": []},
        {"k": "span", "n": "x", "a": 5, "b": 4}, {"k": "anchor", "m": "x"}, {"k": "dropped", "count": -3},
        span("generate", 1, 2),
    )  # fmt: skip
    assert seconds(run.window(3).table("spans"), "name") == [("generate",)]


def test_a_link_in_the_probes_folder_is_not_followed(begin: Begin, tmp_path: Path) -> None:
    """Nor is a table's."""
    run = begin()
    target = tmp_path / "target.jsonl"
    target.write_text(json.dumps(span("generate", 1, 2)) + "\n")
    (run.folder / "probe" / f"{HOST}.7.{UNIX_NS}.jsonl").symlink_to(target)
    (run.folder / "gpu").mkdir()
    (run.folder / "gpu" / "x-000001.arrows").symlink_to(target)
    found = run.window(3)
    assert (found.table("spans").height, found.table("gpu").height) == (0, 0)


def test_the_recorders_own_costs_are_known_while_it_runs(begin: Begin) -> None:
    """The sampler's account is in the manifest, a probe's in its anchors; what was lost is counted."""
    run = begin()
    run.sampler.set_info(**{f"sampler@{HOST}": {"cpu_s": 2.0, "wall_s": 100.0}, "sampler@x": "hostile"})
    run.sampler.count(dropped_rows=2)
    run.sampler.publish()
    cost = {"rows": 1000, "span_ns": 3000, "hook_ns": 5_000_000, "writer_ns": 2_000_000}
    run.probe(
        901, {"k": "anchor", "m": mono(60), "u": UNIX_NS + 60 * S, **cost}, {"k": "dropped", "count": 5}
    )
    run.probe(902, {"k": "capped", "why": "size"})
    expected = Health({HOST: {"cpu_s": 2.0, "wall_s": 100.0}}, (ProbeCost(1, 0.01, 60.0),), 7, 1)
    assert run.window(61).health == expected


def test_the_end_of_the_run_is_noticed(begin: Begin) -> None:
    """The segments are gone then, and what they said is still known."""
    run = begin()
    run.poll(1.0)
    path = run.probe(900, span("generate", 1, 2))
    assert run.window(2).mode == "recording"
    path.unlink()
    run.sampler.close()
    found = run.window(3)
    assert (found.mode, run.live.closed) == ("ended", True)
    assert (found.table("spans").height, found.table("gpu").height) == (1, 1)


def test_a_killed_sampler_does_not_make_the_run_look_alive(begin: Begin) -> None:
    """It never closed its piece; the supervisor has told how the command ended."""
    run = begin()
    run.window(1)
    assert not run.live.closed
    with RecordingWriter.join(run.folder, host=HOST, writer="run") as supervisor:
        supervisor.set_info(**{f"run@{HOST}": {"exit_status": 0}})
    assert run.window(2).mode == "ended"


def test_a_clock_step_that_one_process_saw_moves_nobody(begin: Begin) -> None:
    """A worker that started after the wall clock was set by an hour is placed on the common axis."""
    run = begin()
    hour = 3000 * S
    run.probe(900, {"k": "anchor", "m": mono(60), "u": UNIX_NS + 60 * S + hour})
    late = run.folder / "probe" / f"{HOST}.950.{UNIX_NS}.jsonl"
    lines = [
        {"k": "meta", "rank": 1},
        {"k": "anchor", "m": mono(70), "u": UNIX_NS + 70 * S + hour},
        span("x", 71, 72),
    ]
    late.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert seconds(run.window(80).table("spans"), "t0_ns", "t1_ns") == [(71.0, 72.0)]


def test_when_anything_was_last_written(begin: Begin) -> None:
    """Of all files: a run whose sampler has died still writes spans."""
    run = begin()
    path = run.probe(900, span("generate", 1, 2))
    assert last_written_ns(run.folder) == path.stat().st_mtime_ns
