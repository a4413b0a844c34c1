"""From a completion's text to edits: every code of the parse stage, and whatever else a model may write."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_rl.errors import CODES, Rejection
from crystal_rl.grammar import MAX_BYTES, parse, render
from crystal_rl.messages import Add, Exchange, Remove, Strain, Substitute

if TYPE_CHECKING:
    from crystal_rl.messages import Edit

ELEMENTS = ("Ba", "Cl", "K", "Na", "O", "Sr", "Ti")


def block(*edits: str) -> str:
    return f"<modification>{''.join(edits)}</modification>"


def failure(text: str) -> tuple[str, str]:
    """Code and message."""
    with pytest.raises(Rejection) as caught:
        parse(text, ELEMENTS)
    return caught.value.code, str(caught.value)


GOOD: dict[str, tuple[Edit, ...]] = {
    '<substitute from="Sr" to="Ba"/>': (Substitute("Sr", "Ba"),),
    '<substitute from="Sr" to="Ba" site="3"/>': (Substitute("Sr", "Ba", 3),),
    "<exchange a='Na' b='Cl'/>": (Exchange("Na", "Cl"),),
    '<remove element="O"/>': (Remove("O"),),
    '<remove element="O" site="0"></remove>': (Remove("O", 0),),
    '<add element="K" at="void"/>': (Add("K"),),
    '<add at="0 0.25  .5" element="K"/>': (Add("K", (0.0, 0.25, 0.5)),),
    '<strain axis="all" percent="-1.5"/>': (Strain("all", -1.5),),
    '<strain axis="c" percent="10"/>': (Strain("c", 10.0),),
    '<strain axis="a" percent="+1e0"/>\n <remove element="O"/>\t': (Strain("a", 1.0), Remove("O")),
}


@pytest.mark.parametrize("text", GOOD)
def test_every_form_of_every_edit_is_read(text: str) -> None:
    """Attributes in any order, white space between edits, edits in their order."""
    assert parse(block(text), ELEMENTS) == GOOD[text]


STRAIN = '<strain axis="a" percent="1"/>'
BAD: list[tuple[str, str, str]] = [
    ("no_block", "I would rather not.", "the answer has no <modification>"),
    ("no_block", "", "the answer has no <modification>"),
    (
        "no_block",
        f"<modification>{STRAIN}",
        "<modification> is not closed: was the answer cut off at the token limit?",
    ),
    ("no_block", f"{block(STRAIN)}</think> so:", "the answer has no <modification>"),
    ("no_block", "<modifications></modifications>", "the answer has no <modification>"),
    (
        "many_blocks",
        block(STRAIN) * 2,
        "the answer has more than one <modification>; exactly one is allowed",
    ),
    (
        "many_blocks",
        block(block(STRAIN)),
        "the answer has more than one <modification>; exactly one is allowed",
    ),
    ("too_long", block(" " * MAX_BYTES), "the block has 4,125 bytes; at most 4,096 are allowed"),
    ("too_long", block("é" * 2040), "the block has 4,109 bytes; at most 4,096 are allowed"),
    ("unsafe_xml", block(f"<!-- {STRAIN} -->"), "declarations and entities are not allowed"),
    ("unsafe_xml", block("<![CDATA[x]]>"), "declarations and entities are not allowed"),
    ("unsafe_xml", block("<?php echo 1 ?>"), "declarations and entities are not allowed"),
    ("bad_xml", block("<strain></add>"), "line 1, column 25: mismatched tag"),
    ("bad_xml", block('\n<strain axis="a" percent=1/>'), "line 2, column 26: not well-formed (invalid token)"),
    ("bad_xml", block('<add element="&e;" at="void"/>'), "line 1, column 15: undefined entity"),
    ("bad_xml", block('<remove element="O" element="O"/>'), "line 1, column 35: duplicate attribute"),
    ("bad_xml", block("\x00"), "line 1, column 15: not well-formed (invalid token)"),
    ("bad_xml", block("Sr to Ba"), "text inside <modification>: 'Sr to Ba'"),
    ("bad_xml", block(f"{STRAIN} and"), "text inside <modification>: 'and'"),
    ("bad_xml", block("<remove>O</remove>"), "text inside <modification>: 'O'"),
    ("bad_xml", block("\ud800"), "text inside <modification>: '?'"),
    ("bad_xml", block(f"<add>{STRAIN}</add>"), "<add> must be empty"),
    ("unknown_edit", block('<swap a="Na"/>'), "unknown edit <swap>; use substitute, exchange, remove, add or strain"),
    ("unknown_edit", block(*[STRAIN] * 5, "<x/>"), "unknown edit <x>; use substitute, exchange, remove, add or strain"),
    (
        "unknown_edit",
        block('<add xmlns="u" element="O" at="void"/>'),
        "unknown edit <{u}add>; use substitute, exchange, remove, add or strain",
    ),
    ("edit_count", "<modification/>", "0 edits; 1 to 4 are allowed"),
    ("edit_count", block(" \n"), "0 edits; 1 to 4 are allowed"),
    ("edit_count", block(*[STRAIN] * 5), "5 edits; 1 to 4 are allowed"),
    ("bad_attribute", f'<modification id="1">{STRAIN}</modification>', "modification: unexpected attribute 'id'"),
    ("bad_attribute", block('<add element="O"/>'), "add: at is missing"),
    ("bad_attribute", block('<substitute from="O"/>'), "substitute: to is missing"),
    ("bad_attribute", block('<exchange a="O" b="Na" site="1"/>'), "exchange: unexpected attribute 'site'"),
    ("bad_attribute", block('<add element="O" at="0.5 1.2 0"/>'), "add: at='0.5 1.2 0': each coordinate must be in [0, 1)"),
    ("bad_attribute", block('<add element="O" at="0 0 -0.1"/>'), "add: at='0 0 -0.1': each coordinate must be in [0, 1)"),
    ("bad_attribute", block('<add element="O" at="0 0 nan"/>'), "add: at='0 0 nan': each coordinate must be in [0, 1)"),
    ("bad_attribute", block('<add element="O" at="0 0"/>'), "add: at='0 0': three coordinates or void are needed"),
    ("bad_attribute", block('<remove element="O" site="-1"/>'), "remove: site='-1': an index, 0 or more, is needed"),
    ("bad_attribute", block('<remove element="O" site="1.0"/>'), "remove: site='1.0': an index, 0 or more, is needed"),
    ("bad_attribute", block('<remove element="O" site="٣"/>'), "remove: site='٣': an index, 0 or more, is needed"),
    ("bad_attribute", block('<strain axis="d" percent="1"/>'), "strain: axis='d': use a, b, c or all"),
    ("bad_attribute", block('<strain axis="a" percent="10.01"/>'), "strain: percent='10.01': a number in [-10, 10] is needed"),
    ("bad_attribute", block('<strain axis="a" percent="inf"/>'), "strain: percent='inf': a number in [-10, 10] is needed"),
    ("bad_attribute", block('<strain axis="a" percent="1_0"/>'), "strain: percent='1_0': a number in [-10, 10] is needed"),
    ("bad_attribute", block('<strain axis="a" percent=""/>'), "strain: percent='': a number in [-10, 10] is needed"),
    ("unknown_element", block('<remove element="Xx"/>'), "'Xx' is not an element this surrogate knows"),
    ("unknown_element", block('<substitute from="O" to="Po"/>'), "'Po' is not an element this surrogate knows"),
    ("unknown_element", block('<add element="na" at="void"/>'), "'na' is not an element this surrogate knows"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text", "message"), BAD)
def test_every_failure_has_its_code_and_message(code: str, text: str, message: str) -> None:
    """The first thing wrong is named, in words for the log."""
    assert failure(text) == (code, message)


def test_every_code_of_the_stage_is_tested() -> None:
    """The table above has each parse code of the documentation at least once."""
    parse_codes = {name for name, code in CODES.items() if code.stage == "parse"}
    assert {code for code, _, _ in BAD} == parse_codes


def test_a_document_type_with_entities_never_reaches_the_parser() -> None:
    """Python's XML parser expands internal entities: ten lines can become gigabytes."""
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
    assert failure(f"<modification>{laughs}&b;</modification>")[0] == "unsafe_xml"
    # Before the block it is text, and what it declares does not exist.
    assert failure(f"{laughs}{block('&b;')}")[0] == "bad_xml"


def test_what_surrounds_the_block_is_ignored() -> None:
    """Reasoning before the last </think>, blocks in it included, and words around the answer."""
    text = f"<think>{block('<nonsense/>')} hm</think> no {block()}</think>Answer: {block(STRAIN)} Good luck!"
    assert parse(text, ELEMENTS) == (Strain("a", 1.0),)


def test_the_models_words_in_messages_are_short_and_printable() -> None:
    """No escape sequence and no novel reaches a log."""
    _, message = failure(block(f'<remove element="\x85{"x" * 1000}"/>'))
    assert message == f"'\\x85{'x' * 39}…' is not an element this surrogate knows"


def test_a_huge_completion_is_refused_without_being_parsed() -> None:
    """A megabyte inside the block, or ten thousand blocks: refused by counting."""
    assert failure(block("<a>" * 400_000))[0] == "too_long"
    assert failure(block(STRAIN) * 10_000)[0] == "many_blocks"


def test_deep_nesting_is_refused() -> None:
    """As deep as 4,096 bytes allow."""
    assert failure(block("<a>" * 580 + "</a>" * 580))[0] in {"bad_xml", "unknown_edit"}


def test_minus_zero_is_zero() -> None:
    """So that equal edits are equal bits."""
    (edit,) = parse(block('<add element="K" at="-0 0 0"/>'), ELEMENTS)
    assert isinstance(edit, Add)
    assert edit.at is not None
    assert math.copysign(1, edit.at[0]) == 1.0


elements = st.sampled_from(ELEMENTS)
sites = st.none() | st.integers(0, 999_999)
fractions = (
    st.floats(0, 1, exclude_max=True).map(lambda value: round(value, 6)).filter(lambda value: value < 1)
)
edits = st.one_of(
    st.builds(Substitute, elements, elements, sites),
    st.builds(Exchange, elements, elements),
    st.builds(Remove, elements, sites),
    st.builds(Add, elements, st.none() | st.tuples(fractions, fractions, fractions)),
    st.builds(Strain, st.sampled_from(("a", "b", "c", "all")), st.floats(-10, 10).map(lambda p: round(p, 3))),
)


@given(st.lists(edits, min_size=1, max_size=4).map(tuple))
def test_rendered_edits_parse_to_themselves(wanted: tuple[Edit, ...]) -> None:
    """Nothing is lost on the way to text and back."""
    assert parse(render(wanted), ELEMENTS) == wanted


pieces = st.sampled_from(
    [
        *(
            "<modification>",
            "</modification>",
            "<modification/>",
            "<",
            ">",
            "/>",
            "&",
            "&amp;",
            '"',
            "</think>",
        ),
        *(
            "<add",
            "<strain",
            "<remove",
            "<!",
            "<?",
            "\x00",
            "\ud83d",
            "element=",
            '"O"',
            '"Xx"',
            ' at="void"',
        ),
        *(STRAIN, '<remove element="O"/>', " ", "é", "]]>", "xmlns:x='u'", "<x:add/>"),
    ]
)


@given(st.text() | st.lists(pieces, max_size=12).map("".join))
def test_any_text_is_edits_or_a_rejection(text: str) -> None:
    """Nothing else is ever raised, and the same text gives the same answer."""

    def outcome() -> object:
        try:
            return parse(text, ELEMENTS)
        except Rejection as rejection:
            return CODES[rejection.code].stage, rejection.code, str(rejection)

    first = outcome()
    assert isinstance(first, tuple)
    assert first[0] == "parse" or isinstance(first[0], Substitute | Exchange | Remove | Add | Strain)
    assert outcome() == first
