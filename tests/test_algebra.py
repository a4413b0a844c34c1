"""Verdict algebra: how predicates make clauses, clauses make claims, and what an open verdict must say."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from dipstick.analysis.stats import REASONS as ANALYSIS_REASONS
from dipstick.analysis.stats import Estimate
from dipstick.analysis.whatif_verdict import Decision
from dipstick.judgement import REASONS, WEAKEST_FIRST, Reason, Support, Verdict
from dipstick.verdicts.algebra import (
    claim,
    clause,
    detectable,
    from_decision,
    graded,
    measured,
    rather_than,
    unconfirmed,
)

if TYPE_CHECKING:
    from dipstick.model import Verdict as Word

YES = Verdict("yes", "it does", effect=0.8, interval=(0.7, 0.9), p=0.001)
PARTIALLY = Verdict("partially", "somewhat", effect=0.3)
NO = Verdict("no", "it does not", effect=0.02)
OPEN = unconfirmed(Reason.LOW_N)
BY_WORD = {"yes": YES, "partially": PARTIALLY, "no": NO, "unconfirmed": OPEN}


class TestVerdict:
    """One verdict by itself."""

    def test_unconfirmed_must_say_why(self) -> None:
        """An open answer without a reason helps nobody."""
        with pytest.raises(ValueError, match="needs a reason"):
            Verdict("unconfirmed")

    def test_there_are_four_words(self) -> None:
        """A fifth is a mistake of ours."""
        with pytest.raises(ValueError, match="'maybe' is no verdict; use no, unconfirmed, partially, yes"):
            Verdict("maybe")  # type: ignore[arg-type]  # what the test is about

    def test_words_are_ranked(self) -> None:
        """From no (0) to yes (3)."""
        assert [BY_WORD[word].rank for word in WEAKEST_FIRST] == [0, 1, 2, 3]

    def test_an_open_verdict_offers_the_cheapest_experiment(self) -> None:
        """The reason's own, or a better one; none where nothing is open."""
        assert OPEN.cheapest_experiment == REASONS[Reason.LOW_N].fix
        assert unconfirmed(Reason.LOW_N, experiment="save_steps=3").cheapest_experiment == "save_steps=3"
        assert YES.cheapest_experiment == ""

    def test_an_open_verdict_explains_itself(self) -> None:
        """The sentence defaults to what the reason means."""
        assert unconfirmed(Reason.SPINNING).because == REASONS[Reason.SPINNING].means

    def test_every_reason_has_a_meaning_and_a_fix(self) -> None:
        """Including every code that the analysis layer can return."""
        assert set(REASONS) == set(Reason)
        assert all(text.means and text.fix for text in REASONS.values())
        assert set(ANALYSIS_REASONS) <= {reason.value for reason in Reason}

    def test_a_decision_of_the_analysis_keeps_its_numbers(self) -> None:
        """Effect, interval, p, reason, minimum detectable effect, steps."""
        decision = Decision("unconfirmed", Estimate(0.3, 0.1, 0.5), "LOW_N", 0.5, 0.2, 80, 0.15)

        assert from_decision(decision, "20 of 31 steps") == Verdict(
            "unconfirmed", "20 of 31 steps", 0.3, (0.1, 0.5), 0.15, Reason.LOW_N, 0.2, 80
        )
        assert from_decision(Decision("yes", Estimate(1, 1, 1)), "").reason is None


class TestClause:
    """All predicates are necessary."""

    def test_the_weakest_predicate_decides(self) -> None:
        """Every combination of two: yes > partially > unconfirmed > no."""
        for first, second in itertools.product(WEAKEST_FIRST, repeat=2):
            weakest = min(first, second, key=WEAKEST_FIRST.index)

            assert clause([BY_WORD[first], BY_WORD[second]]).word == weakest

    def test_the_deciding_predicates_numbers_are_the_clauses(self) -> None:
        """And all of them are kept as parts."""
        result = clause([YES, PARTIALLY])

        assert (result.because, result.effect, result.parts) == ("somewhat", 0.3, (YES, PARTIALLY))

    def test_of_equals_the_first_decides(self) -> None:
        """The order in which a claim is written is the order in which it is answered."""
        assert clause([unconfirmed(Reason.CLOCK), unconfirmed(Reason.GAP)]).reason is Reason.CLOCK

    def test_a_clause_of_nothing_is_a_mistake(self) -> None:
        """It would be true of every run."""
        with pytest.raises(ValueError, match="at least one predicate"):
            clause([])


class TestClaim:
    """Clauses are separate statements."""

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("yes yes", "yes"),
            ("no no", "no"),
            ("partially partially", "partially"),
            ("unconfirmed unconfirmed", "unconfirmed"),
            ("yes no", "partially"),
            ("partially no", "partially"),
            ("yes no unconfirmed", "partially"),
            ("yes unconfirmed", "unconfirmed"),
            ("partially unconfirmed", "unconfirmed"),
            ("no unconfirmed", "unconfirmed"),
            ("yes partially", "partially"),
            ("yes", "yes"),
            ("unconfirmed", "unconfirmed"),
        ],
    )
    def test_the_table_of_methods(self, words: str, expected: str) -> None:
        """In either order."""
        clauses = [BY_WORD[word] for word in words.split()]

        assert {claim(list(order)).word for order in itertools.permutations(clauses)} == {expected}

    def test_a_mixed_claim_lists_its_clauses(self) -> None:
        """So that the reader sees which half holds."""
        result = claim([YES, NO])

        assert result.because == "yes: it does; no: it does not"
        assert result.parts == (YES, NO)

    def test_clauses_that_agree_are_all_told(self) -> None:
        """Each said once; the first one's numbers stand."""
        other = Verdict("yes", "and so does that", effect=0.1)

        assert claim([YES, other, YES]).because == "it does; and so does that"
        assert claim([YES, other]).effect == YES.effect

    def test_a_claim_of_one_clause_keeps_its_numbers(self) -> None:
        """Nothing is lost on the way up."""
        assert (claim([YES]).effect, claim([YES]).p) == (0.8, 0.001)

    def test_an_open_claim_keeps_the_open_clauses_reason(self) -> None:
        """The fix is that clause's."""
        assert claim([YES, unconfirmed(Reason.COARSE)]).reason is Reason.COARSE

    def test_a_claim_of_nothing_is_a_mistake(self) -> None:
        """As for clauses."""
        with pytest.raises(ValueError, match="at least one clause"):
            claim([])


class TestMeasured:
    """A bootstrapped number as a verdict."""

    def test_few_steps_give_no_firm_answer(self) -> None:
        """Seven of eight."""
        few, enough = (measured("yes", "it does", Estimate(0.8, 0.7, 0.9), steps) for steps in (7, 8))

        assert (few.word, few.reason) == ("unconfirmed", Reason.LOW_N)
        assert (enough.word, enough.reason) == ("yes", None)

    @pytest.mark.parametrize("word", ["no", "partially", "unconfirmed"])
    def test_what_is_no_yes_says_what_would_have_shown(self, word: Word) -> None:
        """2.8 standard errors: an interval of +-0.1 has 0.051."""
        found = measured(word, "it does", Estimate(0.5, 0.4, 0.6), 20)

        assert found.min_detectable == pytest.approx(0.143, abs=0.001)
        assert measured("yes", "it does", Estimate(0.5, 0.4, 0.6), 20).min_detectable is None

    def test_a_number_that_is_none_is_left_out(self) -> None:
        """Open, without effect or interval."""
        nothing = Estimate(float("nan"), float("-inf"), float("inf"))
        found = measured("no", "it does", nothing, 20)

        assert (found.word, found.effect, found.interval, found.min_detectable) == (
            "unconfirmed",
            None,
            None,
            None,
        )

    @pytest.mark.parametrize("interval", [None, (float("-inf"), 1.0), (0.0, float("nan"))])
    def test_no_interval_nothing_detectable(self, interval: tuple[float, float] | None) -> None:
        """None, not a number."""
        assert detectable(interval) is None


class TestRatherThan:
    """X holds and Y does not."""

    @pytest.mark.parametrize(
        ("this", "that", "contest", "expected"),
        [
            (YES, NO, None, "yes"),
            (PARTIALLY, NO, None, "partially"),
            (YES, YES, 0.95, "yes"),
            (YES, OPEN, 0.97, "yes"),
            (YES, YES, 0.94, "unconfirmed"),
            (YES, YES, None, "unconfirmed"),
            (YES, OPEN, None, "unconfirmed"),
            (YES, YES, 0.03, "no"),
            (NO, NO, None, "no"),
            (NO, YES, 0.99, "no"),
            (OPEN, NO, None, "unconfirmed"),
        ],
    )
    def test_the_rule(self, this: Verdict, that: Verdict, contest: float | None, expected: str) -> None:
        """Y must be no, or the contest won at 0.95."""
        assert rather_than(this, that, contest).word == expected

    def test_two_explanations_that_both_fit_are_collinear(self) -> None:
        """Graphs can't arbitrate between stories that fit them equally well."""
        result = rather_than(YES, OPEN)

        assert result.reason is Reason.COLLINEAR
        assert result.parts == (YES, OPEN)

    def test_an_open_x_keeps_its_own_reason(self) -> None:
        """Y does not matter then."""
        assert rather_than(OPEN, NO).reason is Reason.LOW_N


class TestGraded:
    """A causal yes needs more than going together."""

    @pytest.mark.parametrize(
        ("support", "expected"),
        [
            (Support.NONE, "partially"),
            (Support.ASSOCIATION, "partially"),
            (Support.ORDER, "partially"),
            (Support.DOSE, "yes"),
            (Support.INTERVENTION, "yes"),
        ],
    )
    def test_yes_needs_dose_response(self, support: Support, expected: str) -> None:
        """Level 3 of 4."""
        assert graded(YES, support).word == expected

    def test_other_words_stay(self) -> None:
        """Grading only takes a yes back."""
        for verdict in (NO, OPEN, PARTIALLY):
            assert graded(verdict, Support.NONE) is verdict

    def test_what_is_lacking_is_said(self) -> None:
        """In the sentence."""
        assert "yes needs dose-response" in graded(YES, Support.ORDER).because
