"""Claims are compiled before any result is read: every mistake is found, named, and the valid choices listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dipstick.errors import UsageError
from dipstick.judgement import Verdict
from dipstick.phases import PHASES
from dipstick.verdicts import claims, scorecard
from dipstick.verdicts.claims import TESTS, Said, compiled, from_words
from worlds import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

assert scorecard.REGISTERED


def said(text: str) -> Said:
    """A claim in words."""
    return from_words(text)


def refusal(text: str) -> UsageError:
    """Why a claim in words is refused."""
    with pytest.raises(UsageError) as caught:
        from_words(text)
    return caught.value


@pytest.fixture
def probe() -> Iterator[str]:
    """A registered test with every kind of parameter, gone afterwards."""

    def probe_test(
        evidence: Evidence, *, name: str, count: int = 3, share: float = 0.5, strict: bool = False
    ) -> Judged:
        """Say what was given.

        And a second paragraph.
        """
        assert evidence is not None
        return Verdict("no", f"{name} {count} {share} {strict}"), ()

    claims.claim_test(probe_test)
    yield "probe_test"
    del TESTS["probe_test"]


# The registry


def test_the_signature_is_the_interface(probe: str) -> None:
    """Names, types, defaults and the docstring; ``evidence`` is no parameter."""
    known = TESTS[probe]

    assert [(p.name, p.kind, p.default, p.required) for p in known.parameters] == [
        ("name", str, None, True),
        ("count", int, 3, False),
        ("share", float, 0.5, False),
        ("strict", bool, False, False),
    ]
    assert known.doc == "Say what was given.\n\nAnd a second paragraph."


@pytest.mark.parametrize("name", sorted(TESTS))
def test_every_test_is_documented_and_its_defaults_are_valid(name: str) -> None:
    """A claim without parameters compiles wherever none is required."""
    known = TESTS[name]

    assert known.doc.splitlines()[0].endswith((".", "?"))
    given = {p.name: {"phase": "reward", "rank": 0, "pid": 1}[p.name] for p in known.parameters if p.required}
    assert set(compiled("x", name, given).parameters) == {p.name for p in known.parameters}


def test_the_scorecard_is_the_six_rows_and_one_more() -> None:
    """In the order of the origin's table."""
    assert [(row.test, row.parameters) for row in scorecard.scorecard()] == [
        ("locked_to_steps", {}),
        ("phase_utilization", {"phase": "generate", "at_least": 85.0, "at_most": 100.0}),
        ("drops_after", {"phase": "generate"}),
        ("workers_get_tensors", {}),
        ("synchronizing_workers_cause_dips", {}),
        ("large_moves_force_waiting", {}),
        ("high_utilization_means_work", {"hollow_below": 10.0}),
    ]


# In words


def test_a_claim_in_words_names_its_test_and_parameters() -> None:
    """What is not given has its default."""
    assert said("phase_utilization phase=generate at_least=85") == Said(
        "phase_utilization phase=generate at_least=85",
        "phase_utilization",
        {"phase": "generate", "at_least": 85.0, "at_most": 100.0},
    )


@pytest.mark.parametrize(
    ("text", "say"),
    [
        ("rewards cost most: paid_most_for phase=reward", "rewards cost most"),
        ("in short: rewards: paid_most_for phase=reward", "in short: rewards"),
        ('it\'s "obvious": paid_most_for phase=reward', 'it\'s "obvious"'),
        ("paid_most_for phase='reward'", "paid_most_for phase='reward'"),
    ],
)
def test_what_is_said_stands_before_the_last_colon(text: str, say: str) -> None:
    """And may hold quotes and colons of its own."""
    assert said(text) == Said(say, "paid_most_for", {"phase": "reward"})


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("", "an empty claim", "TEST name=value ...; dipstick claims list"),
        ("nothing but words: ", "an empty claim", "TEST name=value ...; dipstick claims list"),
        ("paid_most_for phase='rew", "unbalanced quotes: No closing quotation", ""),
        ("paid_most_for reward", "'reward' is not name=value", "TEST name=value ..."),
        ("paid_most_for phase=reward phase=generate", "'phase' is given twice", ""),
        ("paid_most_for", "paid_most_for needs phase=...", "dipstick claims show paid_most_for"),
        ("paid_most_for fase=reward", "paid_most_for has no parameter 'fase'", "parameters: phase"),
        ("locked_to_steps phase=reward", "locked_to_steps has no parameter 'phase'", "parameters: none"),
        ("paid_most_for phase=rewards", "there is no phase 'rewards'", f"phase: {', '.join(PHASES)}"),
        ("paid_most_for phase=", "there is no phase ''", f"phase: {', '.join(PHASES)}"),
        ("straggler_rank rank=one", "rank='one' is no int", "dipstick claims show straggler_rank"),
        ("straggler_rank rank=1.5", "rank='1.5' is no int", "dipstick claims show straggler_rank"),
        ("straggler_rank rank=-1", "rank=-1 is below 0", ""),
        ("phase_utilization phase=reward at_least=nan", "at_least='nan' is no float", "dipstick claims show phase_utilization"),
        ("phase_utilization phase=reward at_most=inf", "at_most='inf' is no float", "dipstick claims show phase_utilization"),
        ("phase_utilization phase=reward at_most=1e999", "at_most='1e999' is no float", "dipstick claims show phase_utilization"),
        ("speedup times=0", "times=0.0 is below 0.001", ""),
        ("speedup change=magic", "there is no change 'magic'", "change: faster, more_slots, cap_jobs, balance, overlap_reward"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_the_way_out(text: str, what: str, fix: str) -> None:
    """Before any recording is opened."""
    error = refusal(text)

    assert (error.what, error.fix) == (what, fix)
    assert error.exit_code == 2


def test_an_unknown_test_lists_those_there_are() -> None:
    """All of them, sorted."""
    error = refusal("hunch phase=reward")

    assert error.what == "there is no test 'hunch'"
    assert error.fix == f"tests: {', '.join(sorted(TESTS))}"


def test_a_series_that_cannot_drift_is_refused() -> None:
    """The choices are those of any recording, not of this one."""
    assert refusal("drifts of=speed").what == "there is no of 'speed'"
    assert said("drifts of=gather_wait").parameters == {"of": "gather_wait"}


def test_an_error_does_not_repeat_a_megabyte() -> None:
    """Sixty characters of a claim are enough to find it."""
    error = refusal("x" * 1_000_000)

    assert error.what == "longer than 2000 characters"
    assert error.where == f"claim '{'x' * 60}…'"
    assert len(refusal(f"{'x' * 900}: {'y' * 900}").message().splitlines()[0]) < 250


# Values from Python


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "a", "count": "4"}, "a 4 0.5 False"),
        ({"name": "a", "count": 4.0}, "a 4 0.5 False"),
        ({"name": "a", "share": 1}, "a 3 1.0 False"),
        ({"name": "a", "strict": "yes"}, "a 3 0.5 True"),
        ({"name": "a", "strict": False}, "a 3 0.5 False"),
    ],
)
def test_values_become_the_parameter_s_type(probe: str, given: dict[str, object], expected: str) -> None:
    """As far as nothing is lost."""
    compiled_claim = compiled("x", probe, given)
    (judged,) = claims.judge(World(generate=[4], reward=[[2]]).evidence(), [compiled_claim])

    assert judged.verdict.because == expected


@pytest.mark.parametrize(
    "given",
    [
        {"name": 5},
        {"name": None},
        {"name": ["a"]},
        {"name": "a", "count": 2.7},
        {"name": "a", "count": True},
        {"name": "a", "count": None},
        {"name": "a", "count": "9" * 5000},
        {"name": "a", "share": [0.5]},
        {"name": "a", "share": {}},
        {"name": "a", "share": True},
        {"name": "a", "share": 10**400},
        {"name": "a", "share": float("nan")},
        {"name": "a", "strict": "perhaps"},
        {"name": "a", "strict": 2},
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(probe: str, given: dict[str, object]) -> None:
    """True is no number, 2.7 is not 2, and a list is nothing at all."""
    with pytest.raises(UsageError, match=r" is no (str|int|float|bool)"):
        compiled("x", probe, given)


# Judging


def test_claims_are_judged_in_order_with_what_was_compiled(probe: str) -> None:
    """What is said, the test and its parameters stand beside the verdict."""
    evidence = World(generate=[4], reward=[[2]]).evidence()
    judged = claims.judge(
        evidence, [from_words(f"first: {probe} name=a"), from_words(f"{probe} name=b count=1")]
    )

    assert [(c.say, c.test, c.verdict.because) for c in judged] == [
        ("first", probe, "a 3 0.5 False"),
        (f"{probe} name=b count=1", probe, "b 1 0.5 False"),
    ]
    assert judged[1].parameters == {"name": "b", "count": 1, "share": 0.5, "strict": False}
