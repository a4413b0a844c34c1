"""Planted truth comes out as planted, through the whole product; and the self-test itself can fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from builders import phase_row, tiny_report
from dipstick.cli import main
from dipstick.errors import UsageError
from dipstick.judgement import Check, Claim, Reason, Verdict
from dipstick.model import Breakdown
from dipstick.selftest import confusion, findings, run
from dipstick.selftest.confusion import Cell, Outcome, compare, summary, table
from dipstick.selftest.findings import FINDINGS
from dipstick.selftest.scenarios import SCENARIOS, STRANGER, Scenario
from dipstick.selftest.write import worker_pid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.model import Report
    from dipstick.model import Verdict as Word

NAMES = [scenario.name for scenario in SCENARIOS]


def named(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


# What must be found, and what must not


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Reports of scenarios that were asked for; each is drawn, recorded and explained once."""
    return {}


def report_of(name: str, reports: dict[str, Report]) -> Report:
    if name not in reports:
        reports[name] = run.explained(named(name), 0)
    return reports[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_comes_out_as_planted(name: str, reports: dict[str, Report]) -> None:
    """Every finding that was planted, and no other."""
    cells = compare(named(name), findings.read(report_of(name, reports)))

    assert [cell for cell in cells if cell.state in {"missed", "false"}] == []


def test_a_healthy_run_has_nothing_to_chase(reports: dict[str, Report]) -> None:
    """No spike without an owner, no lost GPU-second without a phase, no rank, worker or job to blame."""
    report = report_of("healthy", reports)
    facts = {check.name: check.facts for check in report.checks}

    assert facts["memory_spikes"]["unexplained"] == 0
    assert [row["verdict"] for row in facts["stragglers"]["slow_workers"]] == ["no"] * 4
    assert "not a fault" in report.answer.headline


def test_the_slow_worker_is_named_in_the_answer(reports: dict[str, Report]) -> None:
    """By process and rank; the rank comes last because of it."""
    headline = report_of("straggler-worker", reports).answer.headline

    assert f"the widest wait for worker {worker_pid(1, 1)} of rank 1" in headline
    assert "rank 1 is last in 48 of 48 steps" in headline


def test_of_a_slow_rank_no_single_worker_is_blamed(reports: dict[str, Report]) -> None:
    """Both of its workers are slow: against each other neither is."""
    facts = next(c.facts for c in report_of("straggler-rank", reports).checks if c.name == "stragglers")

    assert {row["verdict"] for row in facts["slow_workers"]} == {"no"}


def test_planted_waits_are_the_waits_that_are_found(reports: dict[str, Report]) -> None:
    """To the millisecond, over both barriers and ranks."""
    planted = named("spinning").scene(0).loop.waited_s()
    phases = report_of("spinning", reports).phases

    assert phases is not None
    assert sum(row.seconds for row in phases.waits) == pytest.approx(planted, abs=1e-3)


def test_hollow_seconds_are_the_planted_waits_also_from_power_alone(reports: dict[str, Report]) -> None:
    """Less a second a wait, in which the board's power has not come down yet."""
    planted = named("spinning").scene(0).loop
    report = report_of("spinning", reports)
    hollow = sum(gpu.hollow_s for gpu in report.states)

    assert {gpu.method for gpu in report.states} == {"power"}
    assert planted.waited_s() - 1.2 * 2 * planted.plan.steps <= hollow <= planted.waited_s()


def test_the_copies_share_of_the_lost_time_is_as_planted(reports: dict[str, Report]) -> None:
    """Four seconds a step on two GPUs, less the windows at their edges (the first two steps are warm-up)."""
    planted = named("transfer").scene(0).loop
    copied = (planted.end("transfer") - planted.start("transfer"))[:, 2:].sum() / 1e9
    claim = next(c for c in report_of("transfer", reports).claims if c.test == "transfers_force_waiting")

    found = sum(receipt.value or 0.0 for receipt in claim.receipts if receipt.unit == "GPU-s")
    assert 0.95 * copied <= found <= copied


def test_the_cron_job_s_period_and_process_are_found(reports: dict[str, Report]) -> None:
    """45 s, and the stranger beside every spike that matches nothing."""
    facts = next(c.facts for c in report_of("cron", reports).checks if c.name == "memory_spikes")
    beside = [{p["pid"] for p in spike["running"]} for spike in facts["unexplained_spikes"]]

    assert facts["cadence"]["period_s"] == pytest.approx(45, abs=0.5)
    assert all(STRANGER in pids for pids in beside)
    assert len(beside) > 20


def test_twins_share_the_blame(reports: dict[str, Report]) -> None:
    """No spike is given to one of two events that are never apart."""
    facts = next(c.facts for c in report_of("twins", reports).checks if c.name == "memory_spikes")
    owners = {spike["explained_by"] for spike in facts["spikes"]}

    assert "cache_clear or checkpoint" in owners
    assert not owners & {"cache_clear", "checkpoint"}


def test_loops_without_a_barrier_get_no_waits_and_no_last_rank(reports: dict[str, Report]) -> None:
    """Rank 1 is behind by more and more, and nobody waits for it."""
    report = report_of("async", reports)
    facts = next(c.facts for c in report.checks if c.name == "stragglers")

    assert report.phases is not None
    assert report.phases.waits == ()
    assert facts["last_arrivers"] == []
    assert "rank" not in [found["peers"] for found in facts["attribution"]]


def test_coarse_samples_show_no_dips_and_that_says_nothing(reports: dict[str, Report]) -> None:
    """Not "none": a dip of 2 s in a step of 14 s can't be seen at 15 s."""
    report = report_of("coarse", reports)

    assert report.answer.dips_are == "unknown"
    assert "what the dips are can't be told" in report.answer.headline


def test_a_plateau_of_a_launch_bound_decode_is_no_dip(reports: dict[str, Report]) -> None:
    """It reads 34 %, and the dips are still the rewards."""
    report = report_of("launch-bound", reports)
    level = next(c for c in reversed(report.claims) if c.test == "phase_utilization")

    assert level.verdict.effect == pytest.approx(34, abs=1)
    assert "reward scoring" in report.answer.headline


def test_what_grows_is_explained_by_what_grows_with_it(reports: dict[str, Report]) -> None:
    """Completion length."""
    check = next(c for c in report_of("growing", reports).checks if c.name == "trends")

    assert "it goes with completion length" in check.verdict.because


# The scenarios themselves


def test_the_issue_s_twelve_kinds_are_there() -> None:
    """And two more: a rank that is slow as a whole beside one worker, and steps that grow."""
    assert NAMES == [
        "healthy", "straggler-worker", "straggler-rank", "straggler-job", "transfer", "checkpoint-stalls", "cache-clears",
        "cron", "launch-bound", "spinning", "coarse", "twins", "async", "growing",
    ]  # fmt: skip


def test_whatever_is_expected_or_open_is_a_finding() -> None:
    """A misspelt one would never be compared."""
    assert {name for s in SCENARIOS for name in (*s.expected, *s.open)} - FINDINGS.keys() == set()


def test_every_finding_is_planted_somewhere_and_absent_somewhere() -> None:
    """Else its column could not show a miss, or a false alarm."""
    for name in FINDINGS:
        planted = [s.name for s in SCENARIOS if name in s.expected]
        silent = [s.name for s in SCENARIOS if name not in s.expected and name not in s.open]
        assert planted, name
        assert silent or name in {"dips", "locked"}, name


def test_a_scenario_s_draw_does_not_depend_on_the_others() -> None:
    """Its seed is made of its name."""
    first, second = (named(name).scene(0).loop.edges for name in ("healthy", "growing"))

    assert first.shape == second.shape
    assert (first != second).any()
    assert (named("healthy").scene(0).loop.edges == first).all()


# The comparison


def scenario(expected: dict[str, str], *free: str) -> Scenario:
    return Scenario("mine", "a test", named("healthy").plan, expected, frozenset(free))


def states(expected: dict[str, str], found: dict[str, str], *free: str) -> dict[str, str]:
    """State of every cell that is not silent."""
    cells = compare(scenario(expected, *free), found)
    return {cell.finding: cell.state for cell in cells if cell.state != "silent"}


@pytest.mark.parametrize(
    ("expected", "found", "state"),
    [
        ({"rank": "rank 1"}, {"rank": "rank 1"}, {"rank": "found"}),
        ({"rank": "rank 1"}, {}, {"rank": "missed"}),
        ({"rank": "rank 1"}, {"rank": "rank 0"}, {"rank": "false"}),
        ({}, {"rank": "rank 0"}, {"rank": "false"}),
        ({}, {}, {}),
    ],
)
def test_a_cell_is_found_missed_false_or_silent(
    expected: dict[str, str], found: dict[str, str], state: dict[str, str]
) -> None:
    """The wrong rank is a false finding, not a hit."""
    assert states(expected, found) == state


def test_what_the_truth_does_not_decide_is_open() -> None:
    """Whatever is said."""
    assert states({}, {"locked": "yes"}, "locked", "job") == {"locked": "open", "job": "open"}


def outcome(name: str, expected: dict[str, str], found: dict[str, str], error: str = "") -> Outcome:
    return Outcome(name, "a test", () if error else compare(scenario(expected), found), 1.0, error)


GOOD = outcome("good", {"dips": "transfer", "copies": "yes"}, {"dips": "transfer", "copies": "yes"})
BAD = outcome("bad", {"dips": "step_cycle", "job": "yes"}, {"dips": "step_cycle", "rank": "rank 0"})
BROKEN = outcome("broken", {"dips": "step_cycle"}, {}, "KeyError: 'util_pct'")


def test_an_outcome_passes_if_nothing_is_missed_or_false() -> None:
    """And if there was a report at all."""
    assert [o.passed for o in (GOOD, BAD, BROKEN)] == [True, False, False]


def test_the_summary_counts_scenarios_and_findings() -> None:
    """Missed ones are said only where there are some."""
    assert summary([GOOD]) == "1 of 1 scenarios as planted, 0 false findings"
    assert summary([GOOD, BAD, BROKEN]) == "1 of 3 scenarios as planted, 1 false findings, 1 missed"


def test_the_table_shows_marks_values_and_differences() -> None:
    """One row a scenario, one column a finding; below it what differed and the sum."""
    lines = table([GOOD, BAD, BROKEN]).splitlines()

    assert lines[:4] == [
        "scenario  1  2  3  4  5  6  7  8  9 10 11 12 13  said",
        "good      +  .  .  .  .  .  .  +  .  .  .  .  .  transfer, copies",
        "bad       +  .  !  .  -  .  .  .  .  .  .  .  .  step_cycle, rank 0",
        "broken   KeyError: 'util_pct'",
    ]
    assert lines[5] == confusion.LEGEND
    assert lines[6] == " 1 dips: what the dips are"
    assert lines[-4:] == [
        "bad: rank: planted nothing, found rank 0",
        "bad: job: planted yes, found nothing",
        "broken: no report: KeyError: 'util_pct'",
        "1 of 3 scenarios as planted, 1 false findings, 1 missed",
    ]


# Reading a report


STRAGGLERS: dict[str, Any] = {"last_arrivers": [], "slow_workers": []}
SPIKES: dict[str, Any] = {"candidates": [], "unexplained": 0, "unexplained_spikes": []}


def verdict(word: Word, reason: Reason | None = None) -> Verdict:
    """A bare verdict; an open one without a given reason has too few steps."""
    return Verdict(word, reason=reason or (Reason.LOW_N if word == "unconfirmed" else None))


def judged(more: dict[str, Any] | None = None, **words: Verdict) -> Report:
    """A report whose checks and claims say "no" unless told otherwise; ``more`` are facts of either check."""
    facts = {"stragglers": STRAGGLERS | (more or {}), "memory_spikes": SPIKES | (more or {})}
    no, yes = verdict("no"), verdict("yes")
    checks = [
        Check(name, "?", words.get(name, no), facts=facts.get(name, {}))
        for name in ("alignment", "phases", "memory_spikes", "stragglers", "trends")
    ]
    tests = {"transfers_force_waiting": no, "high_utilization_means_work": yes, "phase_utilization": yes}
    claims = [Claim(name, name, {}, words.get(name, usual)) for name, usual in tests.items()]
    return tiny_report(checks=tuple(checks), claims=tuple(claims))


def said(report: Report) -> dict[str, str]:
    """Findings that are not silent, without the dips' own word and the report's waits."""
    return {
        name: text for name, text in findings.read(report).items() if text and name not in {"dips", "waits"}
    }


def test_a_report_without_findings_is_silent() -> None:
    """Every check and claim says no."""
    assert said(judged()) == {}


@pytest.mark.parametrize(
    ("words", "finding"),
    [
        ({"alignment": verdict("partially")}, {"locked": "yes"}),
        ({"stragglers": verdict("yes")}, {"job": "yes"}),
        ({"stragglers": verdict("partially")}, {}),
        ({"trends": verdict("partially")}, {"drift": "yes"}),
        ({"transfers_force_waiting": verdict("partially")}, {"copies": "yes"}),
        ({"high_utilization_means_work": verdict("partially")}, {"hollow": "yes"}),
        ({"phase_utilization": verdict("no")}, {"plateau": "low"}),
        ({"memory_spikes": verdict("unconfirmed", Reason.COARSE)}, {"unsure": "spikes COARSE"}),
        ({"memory_spikes": verdict("unconfirmed", Reason.LOW_N)}, {}),
        (
            {"stragglers": verdict("unconfirmed", Reason.MISSING_SIGNAL)},
            {"unsure": "stragglers MISSING_SIGNAL"},
        ),
    ],
)
def test_words_become_findings(words: dict[str, Verdict], finding: dict[str, str]) -> None:
    """Too few steps are no finding: a longer run would do."""
    assert said(judged(None, **words)) == finding


def test_only_a_rank_that_is_the_straggler_for_certain_is_named() -> None:
    """A "partially" happens by chance."""
    rows = [{"rank": 0, "verdict": "partially"}, {"rank": 3, "verdict": "yes"}]

    assert said(judged({"last_arrivers": rows})) == {"rank": "rank 3"}


def test_the_slow_worker_is_named_by_its_process() -> None:
    """As the operating system knows it."""
    rows = [{"pid": 11, "verdict": "no"}, {"pid": 12, "verdict": "yes"}]

    assert said(judged({"slow_workers": rows})) == {"worker": "pid 12"}


def candidate(event: str, word: str, reason: str | None = None, *twins: str) -> dict[str, Any]:
    return {"event": event, "verdict": word, "reason": reason, "twins": list(twins)}


def test_events_that_make_spikes_are_named_but_not_the_step_s_own_weight_sync() -> None:
    """Weight sync happens each step and belongs to its anatomy."""
    rows = [candidate("weight_sync", "yes"), candidate("cache_clear", "yes"), candidate("checkpoint", "no")]

    assert said(judged({"candidates": rows})) == {"spikes": "cache_clear"}


def test_twins_are_one_finding_and_each_is_untellable() -> None:
    """One name for both."""
    rows = [
        candidate("cache_clear", "partially", "COLLINEAR", "checkpoint"),
        candidate("checkpoint", "partially", "COLLINEAR", "cache_clear"),
    ]

    assert said(judged({"candidates": rows})) == {
        "spikes": "cache_clear or checkpoint",
        "unsure": "cache_clear COLLINEAR, checkpoint COLLINEAR",
    }


def unowned(*pids: int) -> dict[str, Any]:
    """Spikes that match nothing, each with the trainer and one other process (0: alone)."""
    rows = [
        {
            "running": [
                {"pid": 900, "role": "trainer+engine"},
                *([{"pid": pid, "role": "other"}] if pid else []),
            ]
        }
        for pid in pids
    ]
    return {"unexplained": len(rows), "unexplained_spikes": rows}


def test_who_is_there_at_three_unowned_spikes_is_named() -> None:
    """Once or twice is chance."""
    assert said(judged(unowned(7, 7, 8, 7))) == {"unowned": "pid 7"}
    assert said(judged(unowned(7, 8))) == {"unowned": "nobody"}


def test_an_unowned_spike_is_a_finding_even_if_nobody_was_there() -> None:
    """A healthy run has none."""
    assert said(judged(unowned(0))) == {"unowned": "nobody"}


@pytest.mark.parametrize(("waited", "found"), [(0.5, ""), (2.0, "yes")])
def test_waits_count_from_three_percent_on(waited: float, found: str) -> None:
    """Of all the ranks' seconds."""
    totals = (phase_row(None, "generate", 40.0 - waited), phase_row(None, "gather_wait", waited))
    changed = Breakdown((), totals, (), "generate", "generate", ())

    assert FINDINGS["waits"][1](tiny_report(phases=changed)) == found


# Running them


def test_an_unknown_name_lists_the_known_ones() -> None:
    """As every usage error does."""
    with pytest.raises(UsageError, match="no scenario 'helthy'") as error:
        run.choose(["helthy"])
    assert "healthy, straggler-worker" in error.value.message()


def test_scenarios_come_in_their_own_order() -> None:
    """However they were named; none named is all."""
    assert [s.name for s in run.choose(["twins", "healthy"])] == ["healthy", "twins"]
    assert run.choose([]) == SCENARIOS


def test_an_exception_of_the_product_is_this_scenario_s_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others still run."""

    def explained(_scenario: Scenario, _seed: int) -> Report:
        raise KeyError("util_pct")

    monkeypatch.setattr(run, "explained", explained)
    (found,) = run.run(["healthy"], 0)

    assert (found.passed, found.error) == (False, "KeyError: 'util_pct'")


def test_a_product_that_says_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence misses what is planted."""
    monkeypatch.setattr(run, "explained", lambda _scenario, _seed: judged())
    (found,) = run.run(["straggler-job"], 0)

    assert not found.passed
    assert "job" in [cell.finding for cell in found.cells if cell.state == "missed"]


def test_a_product_that_always_finds_something_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A healthy run must stay silent."""
    monkeypatch.setattr(run, "explained", lambda _scenario, _seed: judged(trends=verdict("yes")))
    (found,) = run.run(["healthy"], 0)

    assert [cell.finding for cell in found.cells if cell.state == "false"] == ["waits", "drift"]


def test_several_processes_give_the_same_outcomes(reports: dict[str, Report]) -> None:
    """In the scenarios' order."""
    names = ["coarse", "async"]
    here = [compare(named(name), findings.read(report_of(name, reports))) for name in names]

    assert [(o.scenario, o.cells) for o in run.run(names, 0, processes=2)] == list(
        zip(names, here, strict=True)
    )


# The verb


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """What the runner yields; the test fills it."""
    listed: list[Outcome] = []

    def fake(names: list[str], seed: int, *, processes: int) -> Iterator[Outcome]:
        assert (names, seed, processes > 0) == (["good"], 5, True)
        yield from listed

    monkeypatch.setattr(run, "run", fake)
    return listed


COMMAND = ["selftest", "good", "--seed", "5"]


def test_as_planted_is_0(outcomes: list[Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    """The table is the answer, progress is talk."""
    outcomes.append(GOOD)

    assert main(COMMAND) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "1 of 1 scenarios as planted, 0 false findings"
    assert err == "good: a test: ok (1.0 s)\n"


def test_a_difference_is_1(outcomes: list[Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    """And is named."""
    outcomes += [GOOD, BAD]

    assert main([*COMMAND, "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert "bad: rank: planted nothing, found rank 0" in out
    assert err == ""


def test_as_json(outcomes: list[Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    """Every cell, so that a script can build its own table."""
    outcomes += [BAD, BROKEN]

    assert main([*COMMAND, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    bad, broken = found["scenarios"]
    assert (found["seed"], found["passed"]) == (5, 0)
    assert bad["findings"][2] == {"finding": "rank", "expected": None, "found": "rank 0", "state": "false"}
    assert (broken["passed"], broken["error"], broken["findings"]) == (False, "KeyError: 'util_pct'", [])


def test_an_unknown_scenario_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """2, and what there is."""
    assert main(["selftest", "helthy"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no scenario 'helthy'" in err


def test_one_scenario_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way, nothing replaced."""
    assert main(["selftest", "coarse", "-q"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 scenarios as planted, 0 false findings"


def test_a_cell_knows_what_was_said() -> None:
    """The value, or the finding's name where it is only a yes."""
    rank = Cell("rank", "rank 1", "rank 1", "found")
    waits = Cell("waits", "yes", "yes", "found")

    assert [confusion._said(cell) for cell in (rank, waits)] == ["rank 1", "waits"]
