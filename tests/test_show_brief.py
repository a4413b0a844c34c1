"""The lines of one screen: who comes last, jobs, dips, what is missing."""

from __future__ import annotations

from dataclasses import replace

from builders import (
    HOSTILE,
    breakdown,
    dip,
    empty_report,
    gpus_only_report,
    hostile_report,
    run_info,
    sampling,
    stragglers,
    tiny_report,
)
from dipstick.model import Missing, Note, RankRow, Report
from dipstick.show import words
from dipstick.show.brief import blocks_of
from dipstick.show.document import Bullets, Section


def sections_of(report: Report) -> list[Section]:
    """The sections of all blocks."""
    return [section for block in blocks_of(report) for section in block]


def lines(report: Report) -> dict[str, str]:
    """The leads and texts of the block of lines."""
    found = [section for section in sections_of(report) if isinstance(section, Bullets)]
    return dict(item for section in found for item in section.items)


def test_a_screen_has_phases_waits_and_one_block_of_lines() -> None:
    """States, workers, tenants and how to get what is missing are behind --full."""
    titles = [section.title for section in sections_of(tiny_report())]
    assert titles == ["Where each rank's 20.0 s went", "Waits", ""]


def test_a_report_of_nothing_has_no_lines() -> None:
    """No lead without a text."""
    assert sections_of(empty_report()) == []


def test_three_waits_at_most() -> None:
    """The title says of how many kinds."""
    base = breakdown()
    waits = tuple(replace(base.waits[0], rank=rank) for rank in range(5))
    titles = [section.title for section in sections_of(tiny_report(phases=replace(base, waits=waits)))]
    assert titles[1] == "Waits: the longest 3 of 5 kinds, 12.0 of 20.0 s"


def test_who_comes_last_is_one_line() -> None:
    """The costliest rank first, with what the others waited for it."""
    assert lines(tiny_report())["last at reward"] == (
        "rank 1 in 2 of 2 steps (others waited 4.0 s), rank 0 in 0 (0 s)"
    )


def test_of_many_ranks_two_are_named() -> None:
    """The rest is counted."""
    ranks = tuple(RankRow(rank, rank, 0.0, float(rank)) for rank in range(16))
    report = tiny_report(stragglers=replace(stragglers(), steps=120, by_rank=ranks))
    assert lines(report)["last at reward"] == (
        "rank 15 in 15 of 120 steps (others waited 15.0 s), rank 14 in 14 (14.0 s), 14 more ranks"
    )


def test_a_run_without_barriers_or_jobs_has_no_such_lines() -> None:
    """What was not seen takes no room."""
    bare = replace(stragglers(), by_rank=(), jobs=0)
    leads = lines(tiny_report(stragglers=bare))
    assert "last at reward" not in leads
    assert "reward jobs" not in leads
    assert "last at reward" not in lines(gpus_only_report())


def test_jobs_are_one_line() -> None:
    """Their distribution, and how many worker slots they keep busy."""
    told = "64: median 0.12 s, p99 1.8 s, longest 1.9 s"
    assert lines(tiny_report())["reward jobs"] == f"{told}; 1.9 of 2 worker slots a rank busy"
    unknown = replace(stragglers(), slots_busy=None)
    assert lines(tiny_report(stragglers=unknown))["reward jobs"] == told


def test_dips_are_a_line_a_series() -> None:
    """Three dips of utilization: depth 80, 84, 84; the loss is 6 of 8 GPU-seconds in reward."""
    dips = (
        dip(depth_pct=80.0, deficit_gpu_s=6.0),
        dip(phase="checkpoint", deficit_gpu_s=1.5, scope="job"),
        dip(phase="forward", deficit_gpu_s=0.5, scope="job"),
    )
    found = lines(tiny_report(dips=dips))
    assert found["dips of util"] == (
        "3, 2 on all GPUs; median 84 pts, 3.0 s; loss 75 % in reward, 19 % in checkpoint"
    )
    assert "dips of work" not in found


def test_a_phase_below_a_tenth_of_the_loss_is_not_named() -> None:
    """Reward alone explains these."""
    dips = (dip(deficit_gpu_s=9.5), dip(phase="forward", deficit_gpu_s=0.5))
    told = lines(tiny_report(dips=dips, run=run_info(gpus=1)))["dips of util"]
    assert told == "2; median 84 pts, 3.0 s; loss 95 % in reward"


def test_dips_without_a_phase_say_so() -> None:
    """GPU samples alone know no phase."""
    assert lines(gpus_only_report())["dips of util"].endswith("loss 100 % in no known phase")


def test_missing_signals_are_named_without_their_details() -> None:
    """Four names; --full says what each is for."""
    names = ("payload types (text, arrays)", "file:line", "tenants", "GPM", "jobs", "barriers")
    report = tiny_report(missing=tuple(Missing(name, "x", "y") for name in names))
    assert lines(report)["missing"] == (
        "payload types; file:line; tenants; GPM; 2 more (--full: what for, how to get it)"
    )
    assert "missing" not in lines(tiny_report(missing=()))


def test_warnings_are_shown_and_remarks_are_not() -> None:
    """A remark is in the full report."""
    notes = (Note("info", "1 row dropped."), Note("warning", "The clock stepped."))
    found = lines(tiny_report(notes=notes))
    assert found["warning"] == "The clock stepped."
    assert not any("row dropped" in text for text in found.values())


def test_sampling_is_told_where_it_is_poor() -> None:
    """Holes of more than 0.5 % of the window, or a value every 2 s or more seldom."""
    assert "sampling" not in lines(tiny_report())
    for poor in (sampling(coverage=0.99), sampling(period_s=15.0)):
        assert "one utilization value every" in lines(tiny_report(run=run_info(sampling=poor)))["sampling"]


def test_an_unused_gpu_is_named() -> None:
    """Else the reader would look for its lane."""
    found = lines(tiny_report(run=run_info(unused_gpus=("node1:2",))))
    assert found["unused"] == "Never used in the window: node1:2."


def test_every_line_of_a_hostile_report_is_clean() -> None:
    """Recorded strings are cut to a line and cleaned."""
    found = lines(hostile_report())
    assert words.clean(HOSTILE) in found["warning"]
    assert [text for text in found.values() if words.clean(text) != text] == []
