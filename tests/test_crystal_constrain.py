"""The pattern that constrains answers: it matches what the grammar accepts, and nothing else."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from crystal_rl.constrain import answer_pattern, elements_pattern
from crystal_rl.grammar import parse, render
from crystal_rl.messages import Add, Edit, Exchange, Remove, Strain, Substitute

ELEMENTS = ("H", "He", "C", "Ca", "Cl", "Na", "O", "Ti", "U")

element = st.sampled_from(ELEMENTS)
site = st.none() | st.integers(0, 99)
fraction = st.integers(0, 999).map(lambda n: n / 1000)
percent = st.integers(-99, 99).map(lambda n: n / 10) | st.sampled_from([-10.0, 10.0])
edit: st.SearchStrategy[Edit] = st.one_of(
    st.builds(Substitute, element, element, site),
    st.builds(Exchange, element, element),
    st.builds(Remove, element, site),
    st.builds(Add, element, st.none() | st.tuples(fraction, fraction, fraction)),
    st.builds(Strain, st.sampled_from(["a", "b", "c", "all"]), percent),
)


def test_elements_share_their_first_letters() -> None:
    """C, Ca, Cl are one branch; H and He too; Na has no bare N."""
    assert elements_pattern(ELEMENTS) == "(C[al]?|He?|Na|O|Ti|U)"


@given(st.lists(st.sampled_from(ELEMENTS), min_size=1, unique=True))
def test_the_pattern_of_elements_matches_just_these(some: list[str]) -> None:
    """Whatever the selection."""
    pattern = re.compile(elements_pattern(some))
    assert [e for e in ELEMENTS if pattern.fullmatch(e)] == [e for e in ELEMENTS if e in some]


@given(st.lists(edit, min_size=1, max_size=4))
def test_every_rendered_answer_can_be_written_under_the_constraint(edits: list[Edit]) -> None:
    """Up to three decimals of a coordinate and one of a strain."""
    assert re.fullmatch(answer_pattern(ELEMENTS, 4), render(edits))


@given(st.from_regex(answer_pattern(ELEMENTS, 2), fullmatch=True))
def test_whatever_the_constraint_lets_through_parses(text: str) -> None:
    """So that constrained decoding has no parse failures at all."""
    assert 1 <= len(parse(text, ELEMENTS)) <= 2


def test_one_edit_is_one_edit() -> None:
    """``max_edits`` bounds the answer."""
    two = render([Strain("all", 1.0), Strain("all", 1.0)])
    assert re.fullmatch(answer_pattern(ELEMENTS, 1), two) is None
