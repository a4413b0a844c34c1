"""Sections before any format: which rows there are, and what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    HOSTILE,
    breakdown,
    dip,
    empty_report,
    hostile_report,
    judged_report,
    many_report,
    phase_row,
    run_info,
    sampling,
    states,
    stragglers,
    tiny_report,
)
from dipstick.model import (
    Breakdown,
    Missing,
    Note,
    PhasePart,
    StepArrival,
    Tenant,
    WaitRow,
    WorkerRow,
)
from dipstick.show import gpu_tables, step_tables, words
from dipstick.show.contents import headline, sections, title
from dipstick.show.document import Bars, Bullets, Table, Verdicts


def cells(table: Table | None) -> list[tuple[str, ...]]:
    """The cells of every row."""
    assert table is not None
    return [row.cells for row in table.rows]


def named(table: Table | None) -> list[str]:
    """The first cell of every row."""
    return [row[0] for row in cells(table)]


def titles(table: Table | None) -> list[str]:
    """The column heads."""
    assert table is not None
    return [column.title for column in table.columns]


# --- what was recorded -------------------------------------------------------------------------------------------------


def test_the_title_says_what_was_recorded() -> None:
    """Name, GPUs with their product name, ranks, steps, length of the window."""
    assert title(tiny_report()) == "tiny · 2 × NVIDIA H200 · 2 ranks · 2 steps · 20.0 s"


def test_the_title_names_several_hosts_and_mixed_gpus() -> None:
    """Each product once, in order; one host is not worth a word."""
    run = run_info(
        hosts=3, gpus=24, gpu_names=("NVIDIA H200", "NVIDIA A100", "NVIDIA H200"), steps=1, ranks=1
    )
    found = title(tiny_report(run=run))
    assert found == "tiny · 24 × NVIDIA A100 / NVIDIA H200 · 3 hosts · 1 rank · 1 step · 20.0 s"


def test_the_title_of_a_run_without_gpus() -> None:
    """No GPU is said, not counted."""
    assert title(empty_report()) == "empty · no GPU telemetry · 0 ranks · 0 steps · 0 s"


def test_gpus_without_a_product_name() -> None:
    """An old log does not say what the GPUs were."""
    assert title(tiny_report(run=run_info(gpu_names=()))).startswith("tiny · 2 × GPU · ")


def test_the_headline_is_safe_and_whole() -> None:
    """A long answer is not cut, a hostile one is cleaned."""
    long = "word " * 200
    assert headline(tiny_report(answer=replace(tiny_report().answer, headline=long))) == long.strip()
    assert headline(hostile_report()) == words.clean(HOSTILE)


def test_the_order_of_the_sections() -> None:
    """From the GPUs to the phases, to who waited, to the dips, to what is missing."""
    assert [s.title for s in sections(tiny_report())] == [
        "Busy by utilization, and doing work",
        "Where each rank's 20.0 s went",
        "Who waited for whom",
        "Waits",
        "Who comes last at the reward barrier",
        "Reward workers",
        "Dips of utilization, and of work (without the hollow part); lost GPU-seconds",
        "GPU-seconds by state",
        "Who shares the GPUs",
        "Missing",
        "Notes",
    ]


def test_verdicts_come_before_everything_that_was_measured() -> None:
    """The checks, the scorecard, the what-ifs; then the tables."""
    assert [s.title for s in sections(judged_report())][:4] == [
        "The five checks",
        "Scorecard",
        "What would shrink the step",
        "Busy by utilization, and doing work",
    ]


def test_an_empty_report_has_no_section() -> None:
    """No table of nothing."""
    assert sections(empty_report()) == ()


# --- phases --------------------------------------------------------------------------------------------------------------


def test_phases_stand_in_the_order_of_their_seconds_and_the_remainder_last() -> None:
    """Unattributed is last even where it is large."""
    found = breakdown()
    large = phase_row(None, "unattributed", 39.0, 40.0)
    rows = tuple(replace(r, seconds=20.0) if r.phase == "unattributed" else r for r in found.rows)
    table = step_tables.phase_table(replace(found, rows=rows, totals=(large, *found.totals[:-1])))
    order = ["generate", "reward", "  parse", "  score", "gather wait", "backward", "unattributed", "total"]
    assert named(table) == order


def test_a_ranks_column_adds_up_to_the_window() -> None:
    """The total is the sum over all rows, also of those too small to show."""
    table = step_tables.phase_table(breakdown())
    assert cells(table)[-1] == ("total", "20.0", "20.0", "100 %", "", "", "", "", "4.0")
    shown = [row.cells for row in table.rows if row.kind == "body"]
    for column in (1, 2):
        assert sum(float(row[column]) for row in shown) == 20.0


def test_phases_that_would_read_zero_are_left_out() -> None:
    """0.04 s of 20 s is 0.0 at this precision: no row, but still in the total."""
    small = (phase_row(0, "optimizer", 0.04),)
    found = Breakdown(
        rows=(phase_row(0, "generate", 19.96), *small),
        totals=(phase_row(None, "generate", 19.96), phase_row(None, "optimizer", 0.04)),
        waits=(),
        longest=None,
        paid_most_for=None,
        critical_path=(),
    )
    assert named(step_tables.phase_table(found)) == ["generate", "total"]
    assert cells(step_tables.phase_table(found))[-1][1] == "20.0"


def test_small_phases_are_folded_into_one_row_that_adds_up() -> None:
    """Backward 0.8 % and optimizer 0.2 % of the time: one row, before the unattributed rest."""
    found = Breakdown(
        rows=(phase_row(0, "generate", 970.0), phase_row(0, "backward", 8.0), phase_row(0, "optimizer", 2.0),
              phase_row(0, "unattributed", 20.0)),
        totals=(phase_row(None, "generate", 970.0, 1000.0), phase_row(None, "backward", 8.0, 1000.0, hollow_s=1.0),
                phase_row(None, "optimizer", 2.0, 1000.0, hollow_s=None), phase_row(None, "unattributed", 20.0, 1000.0)),
        waits=(), longest=None, paid_most_for=None, critical_path=(),
    )  # fmt: skip
    table = step_tables.phase_table(found, fold=0.01)
    assert named(table) == ["generate", "2 smaller phases", "unattributed", "total"]
    assert cells(table)[1] == ("2 smaller phases", "10.0", "1 %", "", "", "", "", "1.0")
    assert sum(float(row[1].replace(",", "")) for row in cells(table)[:-1]) == 1000.0


def test_one_small_phase_keeps_its_name() -> None:
    """A row for one phase alone would only hide it."""
    found = breakdown()
    small = tuple(replace(t, share=0.001) if t.phase == "backward" else t for t in found.totals)
    assert "backward" in named(step_tables.phase_table(replace(found, totals=small), fold=0.01))


def test_a_short_run_has_milliseconds() -> None:
    """A recording of 0.2 s is not rounded to nothing."""
    found = Breakdown(
        (phase_row(0, "reward", 0.2, 0.2),), (phase_row(None, "reward", 0.2, 0.2),), (), None, None, ()
    )
    table = step_tables.phase_table(found)
    assert table.title == "Where the 0.200 s went"
    assert cells(table)[0][:3] == ("reward", "0.200", "100 %")


def test_a_part_below_half_a_percent_of_its_phase_has_no_row() -> None:
    """Parse of 0.02 s in 8 s of reward."""
    parts = (PhasePart("parse", 0.02, 1), PhasePart("score", 7.9, 1))
    rows = (phase_row(0, "reward", 8.0, parts=parts),)
    totals = (phase_row(None, "reward", 8.0, parts=parts),)
    assert named(step_tables.phase_table(Breakdown(rows, totals, (), None, None, ()))) == [
        "reward",
        "  score",
        "total",
    ]


def test_parts_of_waits_are_in_their_own_table() -> None:
    """A wait by barrier and cause is a row of the waits, not of the phases."""
    parts = (PhasePart("lengths", 4.0, 1),)
    rows = (phase_row(0, "collective_wait", 4.0, parts=parts),)
    totals = (phase_row(None, "collective_wait", 4.0, parts=parts),)
    assert named(step_tables.phase_table(Breakdown(rows, totals, (), None, None, ()))) == [
        "collective wait",
        "total",
    ]


def test_unmeasured_cells_are_dashes() -> None:
    """No GPU samples in a phase: utilization and hollow seconds are not 0."""
    unattributed = cells(step_tables.phase_table(breakdown()))[-2]
    assert unattributed == ("unattributed", "0.0", "1.0", "2 %", "", "0.50", "0.50", "–", "–")


def test_without_any_gpu_the_hollow_total_is_not_measured() -> None:
    """Nothing known adds up to nothing known."""
    rows = (phase_row(0, "reward", 8.0, hollow_s=None),)
    totals = (phase_row(None, "reward", 8.0, hollow_s=None),)
    assert cells(step_tables.phase_table(Breakdown(rows, totals, (), None, None, ())))[-1][-1] == "–"


def test_five_ranks_become_least_mean_and_most() -> None:
    """Four still have a column each."""
    four, five = (many_report(n).phases for n in (4, 5))
    assert four is not None
    assert five is not None
    assert titles(step_tables.phase_table(four))[1:5] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert titles(step_tables.phase_table(five))[1:4] == ["least", "mean", "most"]
    assert cells(step_tables.phase_table(five))[0][1:4] == ("18.6", "18.8", "19.0")


def test_states_of_each_phase_where_they_are_known() -> None:
    """The gather wait is spinning: that is the evidence for calling it hollow."""
    assert step_tables.state_of_phase_table(breakdown()) is None
    wait = phase_row(None, "gather_wait", 4.0, states={"spinning": 3.9, "idle": 0.1, "compute": 0.0})
    table = step_tables.state_of_phase_table(replace(breakdown(), totals=(wait,)))
    assert titles(table) == ["phase", "idle", "spinning"]
    assert cells(table) == [("gather wait", "0.100", "3.900")]


# --- waits and stragglers ------------------------------------------------------------------------------------------------


def wait(rank: int, seconds: float, late: int | None = 1, because: str = "reward") -> WaitRow:
    return WaitRow(rank, "reward", because, late, "gather_wait", seconds, 3, seconds / 2)


def test_the_longest_waits_come_first() -> None:
    """A late rank that is not known is several."""
    table = step_tables.wait_table(
        replace(breakdown(), waits=(wait(2, 1.0, None), wait(0, 9.0, because="weight_sync")))
    )
    assert cells(table) == [
        ("rank 0", "reward", "rank 1", "weight sync", "9.0 s", "3", "4.5 s"),
        ("rank 2", "reward", "several ranks", "reward", "1.0 s", "3", "0.50 s"),
    ]


def test_one_screen_has_the_longest_waits_and_says_of_how_many() -> None:
    """300 of 300.75 s: the reader sees that nothing of weight was left out."""
    waits = (*(wait(i, 100.0) for i in range(3)), wait(3, 0.5), wait(4, 0.25))
    table = step_tables.wait_table(replace(breakdown(), waits=waits), most=3)
    assert table is not None
    assert named(table) == ["rank 0", "rank 1", "rank 2"]
    assert table.title == "Waits: the longest 3 of 5 kinds, 300.0 of 300.8 s"


def test_a_file_lists_every_wait() -> None:
    """Nothing is added up there."""
    waits = tuple(wait(i, 1.0 / (i + 1)) for i in range(20))
    table = step_tables.wait_table(replace(breakdown(), waits=waits))
    assert table is not None
    assert (len(table.rows), table.title) == (20, "Waits")


def test_no_waits_no_table() -> None:
    """One rank waits for nobody."""
    assert step_tables.wait_table(replace(breakdown(), waits=())) is None


def test_the_costliest_rank_comes_first() -> None:
    """By the seconds that others waited for it."""
    table = step_tables.rank_table(stragglers())
    assert cells(table) == [
        ("rank 1", "2 of 2 steps", "0 s", "4.0 s"),
        ("rank 0", "0 of 2 steps", "4.0 s", "0 s"),
    ]


def test_notes_on_jobs_slots_and_gaps() -> None:
    """Jobs by their distribution, slots by how many are busy, the three widest gaps with the job that ended last."""
    table = step_tables.rank_table(stragglers())
    assert table is not None
    assert table.notes == (
        "64 reward jobs: median 0.12 s, p99 1.8 s, longest 1.9 s.",
        "Worker slots busy while rewards run: 1.9 of 2 a rank.",
        "Widest gaps: step 0, rank 1 last by 2.5 s (job job-7, 1.9 s, pid 936); step 1, rank 1 last by 1.5 s.",
    )


def test_without_jobs_nothing_is_said_about_them() -> None:
    """No pool was recorded."""
    bare = replace(stragglers(), jobs=0, slots=None, slots_busy=None, arrivals=())
    table = step_tables.rank_table(bare)
    assert table is not None
    assert table.notes == ()


def test_steps_without_a_gap_are_not_gaps() -> None:
    """All arrived together."""
    together = (StepArrival(0, 0, 0.0, {0: 0.0}, None, None, None),)
    table = step_tables.rank_table(replace(stragglers(), jobs=0, slots=None, arrivals=together))
    assert table is not None
    assert table.notes == ()


def test_no_ranks_no_table() -> None:
    """A run on one GPU without barriers."""
    assert step_tables.rank_table(replace(stragglers(), by_rank=())) is None


def test_workers_stand_by_how_busy_they_are() -> None:
    """Ties by pid."""
    workers = (WorkerRow(9, 1, 3, 1.0, 0), WorkerRow(8, 0, 3, 1.0, 1), WorkerRow(7, 0, 30, 6.5, 2))
    table = step_tables.worker_table(replace(stragglers(), by_worker=workers))
    assert cells(table) == [
        ("pid 7", "0", "30", "6.5 s", "2 steps"),
        ("pid 8", "0", "3", "1.0 s", "1 step"),
        ("pid 9", "1", "3", "1.0 s", "0 steps"),
    ]
    assert step_tables.worker_table(replace(stragglers(), by_worker=())) is None


# --- GPUs ----------------------------------------------------------------------------------------------------------------


def bars_of(*rows: object) -> list[tuple[str, tuple[str, ...]]]:
    """Label and cells of the busy bars."""
    found = gpu_tables.busy_bars(tiny_report(states=rows))
    assert isinstance(found, Bars)
    return [(bar.label, bar.cells) for bar in found.bars]


def test_busy_is_split_into_work_and_hollow() -> None:
    """Recorded 20: busy 14, of which 4 spin; one GPU needs no row for all."""
    assert bars_of(states(0, compute=8.0, light=2.0, spinning=4.0)) == [
        ("GPU 0", ("70 %", "50 %", "4.0 s", "29 %"))
    ]


@pytest.mark.parametrize("state", ["spinning", "copying_bus", "waiting_or_bus_copy"])
def test_each_hollow_state_is_hollow(state: str) -> None:
    """A bus copy reads as busy, too."""
    assert bars_of(states(0, 10.0, **{state: 5.0})) == [("GPU 0", ("50 %", "0 %", "5.0 s", "100 %"))]


def test_an_idle_gpu_has_no_share_of_busy() -> None:
    """0 of 0 is not 0 %."""
    assert bars_of(states(0, 10.0)) == [("GPU 0", ("0 %", "0 %", "0 s", "–"))]


def test_without_signals_all_of_busy_may_be_work() -> None:
    """Utilization alone can't tell: the range is the answer."""
    assert bars_of(states(0, 10.0, unknown=6.0)) == [
        ("GPU 0", ("60 %", "0 to 60 %", "0 to 6.0 s", "0 to 100 %"))
    ]


@pytest.mark.parametrize(
    ("spinning", "unknown", "hollow", "of_busy"),
    [(0.0, 0.0, "0 s", "0 %"), (2.0, 0.0, "2.0 s", "33 %"), (2.0, 1.0, "2.0 to 3.0 s", "33 to 50 %"), (0.0, 6.0, "0 to 6.0 s", "0 to 100 %")],
)  # fmt: skip
def test_hollow_is_a_range_where_the_state_is_not_known(
    spinning: float, unknown: float, hollow: str, of_busy: str
) -> None:
    """Missing is never zero: of 6 busy seconds, those of unknown state may be hollow, or not."""
    ((_, cells),) = bars_of(
        states(0, 10.0, compute=6.0 - spinning - unknown, spinning=spinning, unknown=unknown)
    )
    assert cells[2:] == (hollow, of_busy)


def test_the_last_bits_of_a_sum_are_no_work() -> None:
    """0.1 + 0.2 seconds not known, 0.3 busy: nothing is known to be work, neither <1 % nor -0 %."""
    ((_, cells),) = bars_of(states(0, 10.0, unknown=0.1 + 0.2, compute=1e-16))
    assert cells[1] == "0 to 3 %"


def test_bars_need_a_used_gpu() -> None:
    """All unused: nothing to draw."""
    assert gpu_tables.busy_bars(tiny_report(states=(replace(states(0), used=False),))) is None


def test_states_that_do_not_occur_have_no_column() -> None:
    """And each row adds up to what was recorded."""
    table = gpu_tables.state_table(tiny_report())
    assert titles(table) == ["", "idle", "compute", "light", "spinning", "recorded"]
    for row in cells(table):
        assert sum(float(cell) for cell in row[1:-1]) == float(row[-1])


def test_gpus_of_several_hosts_are_named_with_their_host() -> None:
    """Index 0 is on every host."""
    assert named(gpu_tables.state_table(many_report(9)))[7:10] == ["host0 GPU 7", "host1 GPU 0", "all"]


def test_tenants() -> None:
    """What the driver does not say is not measured."""
    tenants = (
        Tenant("h", 1, 42, "reward_worker", None, None),
        Tenant("h", 0, 7, "trainer+engine", 49.6, 2**31),
    )
    table = gpu_tables.tenant_table(tiny_report(tenants=tenants))
    assert cells(table) == [
        ("GPU 1", "42", "reward_worker", "–", "–"),
        ("GPU 0", "7", "trainer+engine", "50 %", "2.0"),
    ]


def test_dips_are_grouped_by_phase_and_the_greatest_loss_comes_first() -> None:
    """Depth and length are medians; both series stand in one row."""
    dips = (
        dip(depth_pct=80.0, start_s=0.0, end_s=2.0, deficit_gpu_s=1.0),
        dip(depth_pct=90.0, start_s=0.0, end_s=4.0, deficit_gpu_s=2.0),
        dip(series="work", deficit_gpu_s=5.0),
        dip(phase="checkpoint", deficit_gpu_s=20.0, scope="some"),
    )
    assert cells(gpu_tables.dip_table(tiny_report(dips=dips))) == [
        ("checkpoint", "1", "84 pts", "3.0 s", "20.0", "0", "", "", ""),
        ("reward", "2", "85 pts", "3.0 s", "3.0", "1", "84 pts", "3.0 s", "5.0"),
    ]


def test_dips_of_one_gpu_alone_need_no_scope() -> None:
    """There is nobody to dip with."""
    report = tiny_report(dips=(dip(),), job_dips=(), run=run_info(gpus=1))
    table = gpu_tables.dip_table(report)
    assert table is not None
    assert table.notes == ("Utilization: 1 dip.",)


def test_no_dips_no_table() -> None:
    """A flat line is no table."""
    assert gpu_tables.dip_table(tiny_report(dips=())) is None


# --- what is missing -----------------------------------------------------------------------------------------------------


def bullets(report_title: str, **changes: object) -> tuple[tuple[str, str], ...]:
    found = [s for s in sections(tiny_report(**changes)) if s.title == report_title]
    assert isinstance(found[0], Bullets)
    return found[0].items


def test_a_missing_signal_says_what_for_and_how_to_get_it() -> None:
    """Three fields, one sentence."""
    gone = (Missing("SM counters", "work told from waiting", "record with GPM"),)
    assert bullets("Missing", missing=gone) == (
        ("SM counters", "needed for work told from waiting; record with GPM"),
    )


def test_warnings_are_marked_and_notes_are_not() -> None:
    """A warning stands out."""
    notes = (Note("warning", "The clock stepped."), Note("info", "1 row dropped."))
    assert bullets("Notes", notes=notes)[1:] == (("warning", "The clock stepped."), ("", "1 row dropped."))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ("one utilization value every 0.20 s, each a mean over 0.20 s; a dip shorter than 0.40 s can stay unseen; "
             "100.0 % of the window covered.")),
        ({"counter_window_s": None, "smallest_visible_dip_s": None, "coverage": None}, "one utilization value every 0.20 s."),
        ({"period_s": 30.0, "counter_window_s": None, "smallest_visible_dip_s": 60.0, "coverage": 0.5, "gaps": 1, "gap_s": 10.0},
         ("one utilization value every 30.0 s; a dip shorter than 60.0 s can stay unseen; 50.0 % of the window covered, "
         "1 gap of 10.0 s in all.")),
    ],
)  # fmt: skip
def test_how_finely_it_was_seen(changes: dict[str, float | None], text: str) -> None:
    """What could stay unseen is part of the answer; what is not known is left out."""
    run = run_info(sampling=sampling(**changes))
    assert bullets("Notes", run=run)[0] == ("sampling", text)


def test_without_gpu_samples_nothing_is_said_about_sampling() -> None:
    """There was none."""
    run = run_info(sampling=sampling(period_s=None))
    assert [lead for lead, _ in bullets("Notes", run=run)] == ["", "warning"]


def test_every_cell_of_a_hostile_report_is_clean() -> None:
    """Whatever a recorded string holds, a section holds none of it raw."""
    texts: list[str] = []
    for section in sections(hostile_report()):
        if isinstance(section, Table):
            texts += [cell for row in section.rows for cell in row.cells] + list(section.notes)
        elif isinstance(section, Bars):
            texts += [bar.label for bar in section.bars] + list(section.notes)
        elif isinstance(section, Verdicts):
            for item in section.items:
                texts += [item.key, item.label, item.question, item.because, *sum(item.details, ())]
                texts += [part for proof in item.proofs for part in (proof.text, proof.where, proof.command)]
        else:
            texts += [part for item in section.items for part in item]
    assert len(texts) > 50
    assert [text for text in texts if words.clean(text.strip()) != text.strip()] == []
