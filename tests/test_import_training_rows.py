"""What becomes of the rows that a training run logged: scalars, spans, a clock, and what is said of them."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.importers import training_rows
from dipstick.importers.account import Account
from dipstick.importers.base import Sink
from dipstick.importers.step_clock import MOST_NS, StepClock
from dipstick.importers.timings import LONGEST_S
from dipstick.importers.training_rows import LogRow, TrainingRows, steps_of
from imported import S

CALL = "profiling/Time taken: GRPOTrainer._prepare_inputs"
SYNC = "profiling/Time taken: GRPOTrainer.sync_weights"


class Read:
    """Rows as they go in, tables, bindings and notes as they come out."""

    def __init__(self, **options: Any) -> None:
        self.tables: dict[str, list[pl.DataFrame]] = {}
        self.account = Account("f.log", "x", "host0")
        sink = Sink(self.account, lambda name, frame: self.tables.setdefault(name, []).append(frame))
        sink.clock("relative")
        self.rows = TrainingRows(sink, **options)

    def take(self, *rows: LogRow) -> Read:
        """Add them, and close."""
        for row in rows:
            self.rows.add(row)
        self.rows.close()
        return self

    def frame(self, name: str) -> pl.DataFrame:
        """A whole table; empty if nothing was written."""
        found = self.tables.get(name)
        return pl.concat(found, how="diagonal_relaxed") if found else pl.DataFrame()

    def spans(self) -> list[tuple[str, float, float, int | None, str]]:
        """Name, start, end (seconds), step and origin."""
        frame = self.frame("spans")
        return [
            (row["name"], row["t0_ns"] / S, row["t1_ns"] / S, row["step"], row["origin"])
            for row in frame.to_dicts()
        ]

    def notes(self) -> str:
        """Everything that is said."""
        return "\n".join(note.text for note in self.account.notes)


def row(at: float | None, step: int | None, **values: float) -> LogRow:
    """A row logged at that second."""
    return LogRow(None if at is None else round(at * S), step, values)


# --- a call that was timed -------------------------------------------------------------------------------------------


def test_a_timed_call_ends_when_it_was_logged() -> None:
    """[time of logging - value, time of logging], measured, rank 0: TRL logs one row a call."""
    found = Read().take(LogRow(10 * S, 3, {CALL: 4.0}))
    assert found.spans() == [("GRPOTrainer._prepare_inputs", 6, 10, 3, "measured")]
    assert found.frame("processes").select("role", "rank", "source").rows() == [("trainer", 0, "log")]
    assert "1 timed calls (profiling/*) are of rank 0 only" in found.notes()


def test_calls_nest_by_their_times() -> None:
    """The inner call was logged first; nothing is cut or moved."""
    found = Read().take(LogRow(8 * S, 1, {SYNC: 1.0}), LogRow(10 * S, 1, {CALL: 5.0}))
    assert [(n, a, b) for n, a, b, _, _ in found.spans()] == [
        ("GRPOTrainer.sync_weights", 7, 8),
        ("GRPOTrainer._prepare_inputs", 5, 10),
    ]


def test_two_calls_in_one_row_did_not_both_end_then() -> None:
    """A logger merged them: their lengths are known, their places are not."""
    found = Read().take(LogRow(10 * S, 1, {CALL: 5.0, SYNC: 1.0}))
    assert {origin for *_, origin in found.spans()} == {"reconstructed"}


def test_a_row_whose_time_is_only_about_right_measures_nothing() -> None:
    """Trackio and progress bars: ``exact=False``."""
    found = Read(exact=False).take(LogRow(10 * S, 1, {CALL: 5.0}))
    assert found.spans()[0][-1] == "reconstructed"


@pytest.mark.parametrize("seconds", [-0.1, LONGEST_S, 1e300])
def test_seconds_that_can_be_none_make_no_span(seconds: float) -> None:
    """They stay numbers: 115 days for one call is a number of something else."""
    found = Read().take(LogRow(10 * S, 1, {CALL: seconds}))
    assert found.spans() == []
    assert found.frame("scalars")["value"].to_list() == [seconds]


def test_a_row_without_a_time_gives_numbers_only() -> None:
    """Missing is not zero: no span at t = 0, and no column of times where no row has one."""
    found = Read().take(LogRow(None, 1, {CALL: 4.0, "loss": 1.0}))
    assert found.spans() == []
    assert "t_ns" not in found.frame("scalars").columns


# --- step_time -------------------------------------------------------------------------------------------------------


def test_step_time_ends_when_it_was_logged() -> None:
    """One step a row, each ending at its row; between them lies what step_time leaves out."""
    found = Read().take(row(10, 1, step_time=8.0), row(20, 2, step_time=9.0))
    assert found.spans() == [("step", 2, 10, 1, "reconstructed"), ("step", 11, 20, 2, "reconstructed")]
    assert "it leaves out the optimizer" in found.notes()
    assert "logging_steps > 1" not in found.notes()


def test_a_mean_of_five_steps_is_laid_five_times() -> None:
    """End to end, the last one ending at the row; that single steps can't be known is said."""
    found = Read(every=5).take(row(50, 5, step_time=10.0), row(95, 10, step_time=9.0))
    assert [(s, b - a) for _, a, b, s, _ in found.spans()] == [
        *((s, 10) for s in (1, 2, 3, 4, 5)),
        *((s, 9) for s in (6, 7, 8, 9, 10)),
    ]
    assert found.spans()[-1][2] == 95
    assert found.frame("spans")["detail"].unique().to_list() == ["mean of 5 steps"]
    assert "10 steps have only a mean step_time" in found.notes()


def test_where_the_edges_are_known_better_step_time_is_a_number() -> None:
    """``edges=False``: a progress bar shows them."""
    found = Read(edges=False).take(row(10, 1, step_time=8.0))
    assert found.spans() == []
    assert found.frame("scalars")["name"].to_list() == ["step_time"]


@pytest.mark.parametrize("seconds", [0.0, -1.0, LONGEST_S])
def test_no_step_takes_no_time_or_115_days(seconds: float) -> None:
    """Such a step_time is kept as a number."""
    assert Read().take(row(10, 1, step_time=seconds)).spans() == []


@pytest.mark.parametrize(
    ("step", "last", "every", "many"),
    [
        (1, None, 1, 1), (5, None, 5, 5), (3, None, 5, 3), (10, 5, 5, 5), (7, 5, 5, 2), (None, 5, 5, 1), (5, 5, 1, 1),
        (4, 5, 1, 1), (10_006, 5, 1, 1), (10_005, 5, 1, 10_000), (0, None, 5, 1),
    ],
)  # fmt: skip
def test_how_many_steps_a_mean_stands_for(step: int | None, last: int | None, every: int, many: int) -> None:
    """Those since the row before; a gap of more than 10,000 steps, a repeated step or a resumed run is one."""
    assert steps_of(step, last, every) == many


# --- totals of a step ------------------------------------------------------------------------------------------------


def test_totals_of_a_step_are_laid_out_ending_at_the_row() -> None:
    """verl: the step and its parts in the framework's order, reconstructed, of one driver."""
    values = {"timing_s/step": 10.0, "timing_s/gen": 6.0, "timing_s/update_actor": 3.0}
    found = Read().take(LogRow(30 * S, 7, values))
    assert found.spans() == [
        ("step", 20, 30, 7, "reconstructed"),
        ("gen", 20, 26, 7, "reconstructed"),
        ("update_actor", 26, 29, 7, "reconstructed"),
    ]
    assert found.frame("processes")["role"].to_list() == ["driver"]
    assert "where a part began inside its step was not measured" in found.notes()


def test_step_time_goes_before_totals() -> None:
    """A row that has both shows its step once."""
    found = Read().take(LogRow(30 * S, 7, {"step_time": 9.0, "timing_s/step": 10.0, "timing_s/gen": 6.0}))
    assert [(name, b - a) for name, a, b, _, _ in found.spans()] == [("step", 9)]


# --- what is counted and said ----------------------------------------------------------------------------------------


def test_numbers_that_are_none_are_counted() -> None:
    """NaN and infinity are missing, not 0; the row's other numbers stay."""
    found = Read().take(row(1, 1, loss=math.nan, grad_norm=math.inf, reward=0.5))
    assert found.frame("scalars")["name"].to_list() == ["reward"]
    assert found.account.dropped == {"number that is NaN or infinite": 2}


def test_a_restarted_run_is_said() -> None:
    """Its steps go back, or its clock does; each is counted."""
    found = Read().take(row(1, 5, loss=1.0), row(2, 6, loss=1.0), row(3, 2, loss=1.0), row(2.5, 3, loss=1.0))
    assert "step numbers go back 1 times: the run was restarted" in found.notes()
    assert "time goes back 1 times between rows" in found.notes()


def test_a_row_without_a_step_is_no_step_back() -> None:
    """Evaluation and final rows may have none."""
    found = Read().take(row(1, 5, loss=1.0), row(2, None, train_loss=1.0), row(3, 6, loss=1.0))
    assert "go back" not in found.notes()


def test_keys_are_bound_spans_first_and_unknown_ones_are_listed() -> None:
    """Each key once: what it means, how sure; one that nobody knows is kept as a number and says so."""
    found = Read().take(
        LogRow(S, 1, {"loss": 1.0, "mine": 2.0, CALL: 0.5, "timing_s/reward": 3.0}),
        LogRow(2 * S, 2, {"loss": 1.0}),
    )
    bound = [(b.source, b.meaning, b.unit, b.sure) for b in found.account.bindings]
    assert sorted(bound[:2]) == [
        (CALL, "span GRPOTrainer._prepare_inputs", "s", "certain"),
        ("timing_s/reward", "span reward", "s", "certain"),
    ]
    assert sorted(bound[2:]) == [("loss", "scalar", "", "certain"), ("mine", "", "", "unrecognised")]


def test_a_million_keys_stay_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys beyond the limit are counted, not kept; known ones go on."""
    monkeypatch.setattr(training_rows, "MOST_KEYS", 3)
    rows = [LogRow(i * S, i, {f"k{i}": 1.0, "k0": 2.0}) for i in range(10)]
    found = Read().take(*rows)
    assert len(found.account.bindings) == 3
    assert found.account.dropped == {"number of a key beyond the first 3": 7}
    assert found.frame("scalars").filter(pl.col("name") == "k0").height == 10


def test_rows_are_written_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the log: a full batch goes out at once."""
    monkeypatch.setattr(training_rows, "_BATCH", 4)
    found = Read().take(*(row(i, i, loss=1.0) for i in range(10)))
    assert [frame.height for frame in found.tables["scalars"]] == [4, 4, 2]


def test_nothing_in_nothing_out() -> None:
    """No rows: no tables, no bindings, nothing said."""
    found = Read().take()
    assert (found.tables, list(found.account.bindings), found.notes()) == ({}, [], "")


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 2**62)),
        st.one_of(st.none(), st.integers(0, 2**53)),
        st.dictionaries(
            st.sampled_from(["loss", "step_time", CALL, SYNC, "timing_s/step", "timing_s/gen", "perf/step_time"]),
            st.floats(),
        ),
    ),
    max_size=12,
)  # fmt: skip


@given(ROWS)
def test_any_rows_give_whole_tables(rows: list[tuple[int | None, int | None, dict[str, float]]]) -> None:
    """Every finite number is kept once, every span has its end behind its start, whatever was logged."""
    found = Read().take(*(LogRow(*one) for one in rows))
    finite = sum(math.isfinite(value) for _, _, values in rows for value in values.values())
    everything = sum(len(values) for _, _, values in rows)
    assert found.frame("scalars").height == finite
    assert sum(found.account.dropped.values()) == everything - finite
    assert all(a <= b for _, a, b, _, _ in found.spans())
    assert {origin for *_, origin in found.spans()} <= {"measured", "reconstructed"}


# --- the clock of rows without times ---------------------------------------------------------------------------------


def test_the_clock_is_the_sum_of_step_time() -> None:
    """Nothing before the first step's end: a row that was logged before has no time."""
    clock = StepClock()
    assert clock.at(0, {"loss": 1.0}) is None
    assert clock.at(1, {"step_time": 8.0}) == 8 * S
    assert clock.at(1, {"eval_loss": 1.0}) == 8 * S
    assert clock.at(2, {"step_time": 2.0}) == 10 * S


def test_a_mean_counts_for_all_its_steps() -> None:
    """logging_steps 5, then 5 more steps of 9 s."""
    clock = StepClock(every=5)
    assert clock.at(5, {"step_time": 10.0}) == 50 * S
    assert clock.at(10, {"step_time": 9.0}) == 95 * S


def test_totals_move_the_clock_by_what_they_cover() -> None:
    """The step, and what lies outside it (verl's profiler before, its validation behind)."""
    clock = StepClock()
    assert clock.at(1, {"timing_s/step": 10.0, "timing_s/gen": 6.0}) == 10 * S
    assert clock.at(2, {"timing_s/step": 10.0, "timing_s/start_profile": 1.0}) == 21 * S


def test_a_progress_bar_moves_the_clock_forward_only() -> None:
    """Time between steps shows in the bar; a bar behind the sum moves nothing."""
    clock = StepClock()
    assert clock.at(1, {"timing_s/step": 10.0}, floor_ns=14 * S) == 14 * S
    assert clock.at(2, {"timing_s/step": 10.0}, floor_ns=3 * S) == 24 * S


def test_a_clock_that_runs_from_the_start() -> None:
    """Verl validates before its first step: that row is at the start."""
    assert StepClock(runs=True).at(0, {"val/score": 0.5}) == 0


def test_a_made_up_clock_stops_after_three_years() -> None:
    """Absurd seconds can't overflow a column of nanoseconds."""
    clock = StepClock()
    for step in range(1, 50):
        at = clock.at(step, {"step_time": LONGEST_S - 1})
    assert at == clock.ns == MOST_NS


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["step_time", "timing_s/step", "timing_s/testing", "x"]), st.floats())
    )
)
def test_the_clock_never_goes_back(rows: list[dict[str, float]]) -> None:
    """Whatever is logged, and within its bound."""
    clock, last = StepClock(), 0
    for step, values in enumerate(rows):
        at = clock.at(step, values)
        assert at is None or last <= at <= MOST_NS
        last = at or last
