"""What the page's charts are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import (
    HOSTILE,
    empty_report,
    gpus_only_report,
    hostile_report,
    judged_report,
    many_report,
    tiny_report,
)
from dipstick.analysis.spans import of_nobody
from dipstick.judgement import Check, Receipt, Verdict
from dipstick.phases import CODE
from dipstick.show import page, page_rows, page_tracks
from dipstick.show.pack import Pack
from dipstick.show.page_tracks import Budget
from dipstick.verdicts.report import explain
from records import cycle, job, memory, process, span, utilization
from test_show_pack import opened
from worlds import event

if TYPE_CHECKING:
    from dipstick.recording.reader import Recording


def recording(**more: Any) -> Recording:
    """One rank, two steps, memory and power of its GPU, two jobs with payloads, a checkpoint."""
    place = {"file": "train.py", "line": 12}
    spans = [row | place for step in (0, 1) for row in cycle(0, step, 10.0 * step, (4, 3, 2, 1))]
    gpu = utilization([95.0] * 70 + [20.0] * 30, mem_util_pct=30.0, power_w=300.0, mem_used_b=8 * 2**30)
    jobs = [
        job("a", 4, 6, pid=7)
        | {"payload_b": 512, "payload_types": "list[str]", "submitted_ns": 3_500_000_000},
        job("b", 5, 6, pid=8),
    ]
    rows: dict[str, Any] = {
        "spans": spans, "gpu": gpu, "jobs": jobs, "processes": [process(900, rank=0, gpu=0)],
        "events": [event("checkpoint", 9.0, 9.5), event("gc", 3.0)],
    }  # fmt: skip
    return memory(**(rows | more))


@pytest.fixture(scope="module")
def made() -> tuple[dict[str, Any], list[list[int]]]:
    """The page's header and arrays of that recording."""
    found = recording()
    return opened(page.data(explain(found), found)[0])


def test_the_seeds_three_charts_come_first_then_power(made: tuple[dict[str, Any], Any]) -> None:
    """Each with a line a GPU and its mean for those who can't see it."""
    head, _ = made
    assert [(c["key"], c["unit"], c["means"]) for c in head["signals"]] == [
        ("util", "%", ["72.5"]), ("memory", "GiB", ["8.0"]), ("access", "%", ["30.0"]), ("power", "W", ["300.0"]),
    ]  # fmt: skip


def test_a_signal_that_nobody_recorded_has_no_chart() -> None:
    """Missing is not zero: no memory, no power, no memory chart and no power chart."""
    found = recording(gpu=utilization([95.0] * 70 + [20.0] * 30))
    head, _ = opened(page.data(explain(found), found)[0])
    assert [c["key"] for c in head["signals"]] == ["util"]


def test_phases_know_the_code_they_were_in(made: tuple[dict[str, Any], list[list[int]]]) -> None:
    """The site of a phase is the innermost span: name, place, how often and how long."""
    head, arrays = made
    rank = head["ranks"][0]
    codes, sites = arrays[rank["low"]], arrays[rank["site"]]
    at = codes.index(CODE["reward"])
    site = head["sites"][sites[at]]
    assert (site["name"], site["place"], site["facts"]["median"]) == (
        "GRPOTrainer._calculate_rewards",
        "train.py:12",
        "3.0 s",
    )


def test_time_between_spans_has_no_site() -> None:
    """A stretch that no span covers names no code."""
    spans = [span("GRPOTrainer.vLLM.generate", 0, 4), span("backward", 6, 10)]
    found = memory(spans=spans, processes=[process(900, rank=0, gpu=0)])
    head, arrays = opened(page.data(explain(found), found)[0])
    rank = head["ranks"][0]
    times = [t * head["tick_s"] for t in arrays[rank["t0"]]]
    assert arrays[rank["site"]][times.index(4.0)] == 2**32 - 1


def test_jobs_carry_payload_queue_and_worker(made: tuple[dict[str, Any], list[list[int]]]) -> None:
    """What was not recorded is absent, not 0."""
    head, arrays = made
    jobs = head["jobs"]
    assert jobs["workers"] == [{"rank": 0, "pid": 7}, {"rank": 0, "pid": 8}]
    assert (arrays[jobs["queued_ms"]], arrays[jobs["bytes"]]) == ([500, 0], [512, 2**32 - 1])
    assert (jobs["types"]["texts"], jobs["types"]["at"], jobs["job"]["texts"]) == (
        ["list[str]"],
        [0, -1],
        ["a", "b"],
    )


def test_events_have_a_row_a_name(made: tuple[dict[str, Any], list[list[int]]]) -> None:
    """An instant has no length."""
    head, arrays = made
    assert head["events"]["names"] == ["checkpoint", "gc"]
    assert [t * head["tick_s"] for t in arrays[head["events"]["len"]]] == pytest.approx([0.5, 0.0])


def test_dips_name_their_gpu_and_phase() -> None:
    """By the GPU's place in the page's list."""
    head, arrays = opened(page.data(tiny_report(), None)[0])
    dips = head["marks"]["dips"]
    assert [arrays[dips["gpu"]][i] for i in range(3)] == [0, 0, 1]
    assert sorted({dips["phases"][p] for p in arrays[dips["phase"]]}) == ["gather_wait", "reward"]


def test_spikes_say_what_explains_them() -> None:
    """Nothing is an empty name."""
    spike = {
        "host": "node1",
        "gpu": 0,
        "start_s": 1.0,
        "end_s": float("nan"),
        "peak_pct": 80.0,
        "phase": "generate",
        "explained_by": None,
    }
    check = Check("memory_spikes", "?", Verdict("no"), facts={"spikes": [spike]})
    head, _ = opened(page.data(tiny_report(checks=(check,)), None)[0])
    assert head["marks"]["spikes"] == [
        {"gpu": 0, "t0": 1.0, "t1": None, "peak": 80.0, "phase": "generate", "by": ""}
    ]


def test_hand_overs_are_summed_by_kind() -> None:
    """From, to, types, transport and place; bytes that are not known stay unknown."""
    row = {
        "host": "node1",
        "rank": 0,
        "t_ns": 5,
        "from": "trainer",
        "to": "worker",
        "types": "list[str]",
        "transport": "pickle",
        "file": "r.py",
        "line": 3,
    }
    found = recording(
        handoffs=[row | {"count": 64, "bytes_b": 1000}, row | {"t_ns": 9, "count": 64, "bytes_b": 2000}]
    )
    crossed = page_rows.handoffs(found)
    assert [(h["from"], h["types"], h["items"], h["bytes"], h["times"]) for h in crossed] == [
        ("trainer", "list[str]", 128, 3000, 2)
    ]


@pytest.mark.parametrize(
    "make", [empty_report, tiny_report, judged_report, gpus_only_report, many_report, hostile_report]
)
def test_every_report_can_be_packed_without_its_recording(make: Any) -> None:
    """What only the recording tells is left out."""
    head, _ = opened(page.data(make(), None)[0])
    assert (head["jobs"], head["events"], head["handoffs"]) == (None, None, [])


def test_recorded_strings_are_cleaned() -> None:
    """Control characters and overrides go; the rest is text in the page."""
    evil = HOSTILE.replace("\ud800", "")  # no Parquet file can hold half a character
    spans = [span(evil, 0, 9) | {"file": evil}]
    found = recording(jobs=[job(evil, 4, 6)], events=[event(evil, 1, 2)], spans=spans)
    head, _ = opened(page.data(explain(found), found)[0])
    told = str([head["jobs"], head["events"]["names"], head["sites"]])
    assert not any(bad in told for bad in ("\\x1b", "\\u202e", "\\x07"))


# --- thinning ---


def test_a_long_run_is_thinned_and_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 samples in at most 50 columns; every dip stays visible."""
    monkeypatch.setattr(page_tracks, "MOST_CELLS", 50)
    monkeypatch.setattr(Budget, "each", lambda _self, whole, series: whole // series)
    found = recording(gpu=utilization([95.0] * 70 + [20.0] * 30))
    report = explain(found)
    pack = Pack()
    header = page_tracks.gpu_tracks(report, found, pack, Budget(()))
    line = header["signals"][0]["lines"][0]
    _, arrays = opened(pack.text({}))
    assert (min(arrays[line["low"]]), max(arrays[line["high"]])) == (200, 950)
    assert page_tracks.thinned(header, pack) == (
        "The charts hold 100 samples as 25 columns, each with the least and the most of up to 1.0 s; around the receipts every sample is there."
    )


def test_nothing_is_said_where_nothing_was_thinned() -> None:
    """The sample fits as it is."""
    found = recording()
    assert page.data(explain(found), found)[1] == ""


def test_receipts_get_windows_and_the_whole_run_does_not() -> None:
    """A margin of 2 s and a quarter; a receipt about a fiftieth of the run or more is no place."""
    near, whole = (
        Receipt("interval", "x", t0_s=100.0, t1_s=104.0),
        Receipt("interval", "x", t0_s=0.0, t1_s=900.0),
    )
    check = Check("alignment", "?", Verdict("yes"), (near, whole))
    base = tiny_report(checks=(check,))
    report = replace(base, run=replace(base.run, seconds=1000.0))
    assert (97.0, 107.0) in page.full_windows(report)
    assert max(b - a for a, b in page.full_windows(report)) < 100


def test_more_jobs_than_fit_keep_the_longest_and_those_near_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of time."""
    monkeypatch.setattr(page_rows, "MOST_JOBS", 2)
    jobs = [job("short", 1, 1.1), job("long", 2, 9), job("near", 10, 10.1), job("mid", 11, 12)]
    made = page_rows.job_tracks(recording(jobs=jobs), Pack(), Budget([(10, 10.05)]))
    assert made is not None
    assert (made["all"], made["job"]["texts"]) == (4, ["long", "near"])


def test_more_events_than_fit_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each name in each stretch of time, so that none of the names is lost."""
    monkeypatch.setattr(page_rows, "MOST_EVENTS", 20)
    events = [event("gc", t / 10) for t in range(200)] + [event("rare", 7.0)]
    pack = Pack()
    made = page_rows.event_tracks(recording(events=events), pack)
    assert made is not None
    assert (made["all"], made["names"]) == (201, ["gc", "rare"])
    assert pack.count(made["t0"]) <= 31


def test_a_rank_without_spans_has_no_sites() -> None:
    """Its cells point nowhere."""
    from dipstick.show.thin import Cells  # noqa: PLC0415 - only here

    cells = Cells(np.array([0.0]), np.array([1.0]), np.array([2.0]), np.array([2.0]), 1)
    spans = page_rows._numbered(recording().table("spans"), page_rows._sites(recording().table("spans")))
    assert page_rows._innermost(5, spans, cells).tolist() == [-1.0]


def test_a_worker_s_code_is_not_where_its_rank_was() -> None:
    """A reward worker of rank 0 parses during [4, 7): the rank's own rewards are what the page shows there."""
    worker = process(7, rank=0, gpu=0, role="reward_worker")
    place = {"file": "train.py", "line": 12}
    spans = [
        *(row | place for row in cycle(0, 0, 0.0, (4, 3, 2, 1))),
        span("parse", 4, 7, rank=0) | place | {"pid": 7},
    ]
    found = recording(spans=spans, processes=[process(900, rank=0, gpu=0), worker])

    head, _ = opened(page.data(explain(found), found)[0])

    assert "parse" not in {site["name"] for site in head["sites"]}


def test_a_worker_s_event_has_no_rank_on_the_page() -> None:
    """It inherited rank 0; the trainer's event keeps it."""
    worker = process(7, rank=0, gpu=0, role="reward_worker")
    events = [event("gc", 3.0) | {"pid": 7, "rank": 0}, event("gc", 5.0) | {"pid": 900, "rank": 0}]
    found = recording(events=events, processes=[process(900, rank=0, gpu=0), worker])
    pack = Pack()

    assert page_rows.event_tracks(found, pack) is not None
    assert found.table("events")["rank"].to_list() == [0, 0]
    assert of_nobody(found.table("events"), found.table("processes"))["rank"].to_list() == [None, 0]


def test_a_spike_belongs_to_its_host_s_gpu() -> None:
    """GPU 0 of two hosts: the page's GPUs are counted over both; one of no known GPU has none."""
    spikes = [
        {"host": host, "gpu": 0, "start_s": 1.0, "end_s": 2.0, "peak_pct": 80.0} for host in ("a", "b", "c")
    ]
    places = {("a", 0): 0, ("b", 0): 1}

    assert [page_rows.placed_spike(spike, places)["gpu"] for spike in spikes] == [0, 1, -1]
