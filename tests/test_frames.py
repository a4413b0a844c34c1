"""Recorded and derived tables: what ``dipstick query`` sees, with every column even where there is no row."""

from __future__ import annotations

import polars as pl
import pytest

from dipstick.analysis import frames
from dipstick.analysis.pipeline import analyse
from records import Row, boxcar, memory, near, ns, process, utilization
from worlds import World

TINY = World(generate=[4, 5], reward=[[3, 2], [3, 4]], profiled=False)
FINDINGS = analyse(TINY.recording())


def table(name: str) -> pl.DataFrame:
    """A derived table of the tiny run."""
    return frames.derived(FINDINGS, name)


def test_recorded_tables_have_seconds_beside_nanoseconds() -> None:
    """A span from 4 to 7 s; its own columns stay."""
    frame = frames.recorded(TINY.recording(), "spans")
    rewards = frame.filter(pl.col("name").cast(pl.String).str.ends_with("_calculate_rewards"))

    assert sorted(rewards["t0_s"].to_list()) == [4.0, 4.0, 13.0, 13.0]
    assert sorted(rewards["t1_s"].to_list()) == [6.0, 7.0, 16.0, 17.0]
    assert rewards["t0_ns"].to_list()[0] == ns(4)


def test_a_table_that_was_not_recorded_is_there_without_rows() -> None:
    """Nobody logged events; the query is allowed and counts none."""
    frame = frames.recorded(TINY.recording(), "events")

    assert frame.height == 0
    assert {"name", "t0_ns", "t0_s", "t1_s"} <= set(frame.columns)


def test_every_name_can_be_asked_for() -> None:
    """Recorded ones first, then the derived."""
    assert set(frames.names()) >= {"gpu", "spans", "jobs", *frames.DERIVED}
    assert set(frames.DERIVED) == set(frames.SCHEMAS)


@pytest.mark.parametrize("name", frames.DERIVED)
def test_derived_tables_have_their_columns_and_types(name: str) -> None:
    """With rows."""
    assert dict(table(name).schema) == frames.SCHEMAS[name]


@pytest.mark.parametrize("name", frames.DERIVED)
@pytest.mark.parametrize(
    "rows", [{"gpu": utilization([50.0] * 10)}, {"spans": TINY.spans()[:1]}], ids=["gpu", "spans"]
)
def test_a_derived_table_without_rows_has_its_columns_too(name: str, rows: dict[str, list[Row]]) -> None:
    """GPU samples only, or one span only: a receipt's query finds nothing, and does not fail."""
    assert dict(frames.derived(analyse(memory(**rows)), name).schema) == frames.SCHEMAS[name]


def test_phase_pieces_add_up_to_the_window_of_each_rank() -> None:
    """18 s each; rank 1 scores for 2 and 4 s."""
    pieces = table("phase_pieces")
    total = pieces.group_by("rank").agg(pl.col("seconds").sum()).sort("rank")
    scored = pieces.filter((pl.col("rank") == 1) & (pl.col("phase") == "reward"))

    assert total["seconds"].to_list() == near([18, 18])
    assert scored.select("step", "t0_s", "t1_s", "seconds").rows() == [
        (0, 4.0, 6.0, 2.0),
        (1, 13.0, 17.0, 4.0),
    ]


def test_phase_rows_are_the_breakdown() -> None:
    """Rank 0 waits for 1 s, at full utilization."""
    rows = (
        table("phase_rows")
        .filter(pl.col("phase") == "gather_wait")
        .select("rank", "seconds", "count", "util_mean_pct")
    )

    assert rows.rows() == [(0, near(1.0), 1, near(100.0)), (1, near(1.0), 1, near(100.0))]


def test_steps_are_bracketed_by_the_framework_and_cycles_by_the_barriers() -> None:
    """Here they coincide; there is one cycle for all ranks."""
    assert table("steps").select("rank", "step", "seconds").rows() == [
        (0, 0, 8.0),
        (0, 1, 10.0),
        (1, 0, 8.0),
        (1, 1, 10.0),
    ]
    assert table("cycles").rows() == [(0, 0.0, 8.0, 8.0), (1, 8.0, 18.0, 10.0)]


def test_waits_say_who_waited_how_long_and_for_what() -> None:
    """At the reward gather of step 0 rank 1 waits 1 s for rank 0, which still scores."""
    rows = table("waits").filter((pl.col("barrier") == "reward") & (pl.col("step") == 0)).sort("rank")

    assert rows.select("rank", "arrival_s", "release_s", "wait_s", "late_rank").rows() == [
        (0, 7.0, 7.0, 0.0, 0),
        (1, 6.0, 7.0, 1.0, 0),
    ]
    assert rows["because"].to_list()[1] == "reward"


def test_states_add_up_to_the_busy_and_hollow_seconds() -> None:
    """Without power or counters nothing is hollow; busy is the integral of utilization."""
    states = table("states").filter(pl.col("gpu") == 0)
    expected = 0.99 * 9 + 0.15 * 6 + 1.0 * 1 + 0.6 * 2

    assert states["busy_s"].sum() == near(expected, rel=1e-4)
    assert states["hollow_s"].sum() == 0
    assert set(states["rank"].to_list()) == {0}


def test_utilization_that_was_not_measured_is_null_and_not_zero() -> None:
    """One of four samples."""
    rows = [r | ({"util_pct": float("nan")} if i == 2 else {}) for i, r in enumerate(utilization([50.0] * 4))]
    findings = analyse(memory(gpu=rows))

    assert frames.derived(findings, "samples")["util_pct"].to_list() == [50.0, 50.0, None, 50.0]
    assert frames.derived(findings, "states")["busy_s"].sum() == near(0.3)


def test_samples_stand_for_their_windows() -> None:
    """A sample of the driver's buffer at 0.4 s speaks for [0.2, 0.4)."""
    samples = frames.derived(
        analyse(memory(gpu=utilization([10.0, 20.0], mem_util_pct=[1.0, 2.0]))), "samples"
    )

    assert samples.select("gpu", "t0_s", "t1_s", "util_pct", "mem_util_pct").rows() == [
        (0, 0.0, 0.2, 10.0, 1.0),
        (0, 0.2, 0.4, 20.0, 2.0),
    ]


def test_dips_of_a_gpu_and_of_the_job_are_told_apart() -> None:
    """The job's dips have no GPU; both know their phase."""
    dips = table("dips")

    assert set(dips["gpu"].to_list()) == {None, 0, 1}
    assert set(dips["phase"].to_list()) == {"reward"}
    assert (dips["seconds"] - (dips["end_s"] - dips["start_s"])).abs().max() == near(0, abs=1e-9)


def test_a_gpu_of_no_rank_has_states_without_a_rank() -> None:
    """Samples only."""
    states = frames.derived(analyse(memory(gpu=utilization(boxcar([(0, 4)], 8)))), "states")

    assert states["rank"].null_count() == states.height
    assert states["busy_s"].sum() == near(4.0)


def test_hosts_keep_their_names() -> None:
    """GPU 0 of two nodes."""
    rows = utilization([50.0] * 10) + [r | {"host": "node2"} for r in utilization([50.0] * 10)]
    findings = analyse(memory(gpu=rows, processes=[process(1, rank=None, gpu=0)]))

    assert sorted(set(frames.derived(findings, "states")["host"].to_list())) == ["node1", "node2"]
