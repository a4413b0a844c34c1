"""Hostile answers: attacks on XML parsers, on readers of numbers and names, on logs; and answers that are nearly right.

The text is a language model's, so all of it is an attacker's. What holds for each: a code of the stage ``parse`` or
edits within the grammar; at most 4,096 bytes reach the XML parser, without declarations; nothing is opened or fetched.
"""

from __future__ import annotations

import builtins
import json
import math
import socket
import unicodedata
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_rl.errors import CODES, STAGE_REWARDS, Rejection, rejected
from crystal_rl.grammar import AXES, MAX_BYTES, parse, render
from crystal_rl.messages import Add, Exchange, Remove, Result, Strain, Substitute, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from crystal_rl.messages import Edit

ELEMENTS = ("Ba", "Cl", "K", "Na", "O", "Sr", "Ti")


def block(inside: str) -> str:
    return f"<modification>{inside}</modification>"


def code_of(text: str) -> str | None:
    """The code it is refused with; None if it is accepted."""
    try:
        parse(text, ELEMENTS)
    except Rejection as rejection:
        return rejection.code
    return None


def outcome(text: str, elements: Sequence[str] = ELEMENTS) -> Result | tuple[Edit, ...]:
    """The edits, or the result that a completion which does not parse gets at once."""
    try:
        return parse(text, elements)
    except Rejection as rejection:
        return rejected("c0", rejection.code, str(rejection))


# --- known attacks -----------------------------------------------------------------------------------------------

LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
GOOD = '<remove element="O"/>'
MANY = " ".join(f"a{i}=''" for i in range(400))
ATTACKS: dict[str, tuple[str, str]] = {
    "billion laughs": (block(f'<!DOCTYPE m [<!ENTITY l0 "ha">{LAUGHS}]>&l9;'), "unsafe_xml"),
    "quadratic blow-up": (block(f'<!DOCTYPE m [<!ENTITY a "{"a" * 3000}">]>{"&a;" * 200}'), "unsafe_xml"),
    "a local file": (block('<!DOCTYPE m [<!ENTITY f SYSTEM "file:///etc/passwd">]>&f;'), "unsafe_xml"),
    "a request": (block('<!DOCTYPE m SYSTEM "http://169.254.169.254/latest/meta-data">'), "unsafe_xml"),
    "a parameter entity": (block('<!DOCTYPE m [<!ENTITY % p SYSTEM "file:///dev/random">%p;]>'), "unsafe_xml"),
    "an entity that nobody declared": (block('<remove element="&xxe;"/>'), "bad_xml"),
    "an inclusion": (
        block('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="/etc/passwd"/>'),
        "unknown_edit",
    ),
    "a style sheet": (block('<?xml-stylesheet href="http://example.org/x.xsl"?>'), "unsafe_xml"),
    "another encoding": (block('<?xml version="1.0" encoding="utf-7"?>+ADw-add/+AD4-'), "unsafe_xml"),
    "utf-7 without saying so": (block("+ADw-remove element=+ACI-O+ACI-/+AD4-"), "bad_xml"),
    "a comment that hides an edit": (block('<!--><remove element="O"/><!-->'), "unsafe_xml"),
    "a CDATA section that closes the block": (block("<![CDATA[</modification>]]>"), "unsafe_xml"),
    "a tag in an attribute": (block('<remove element="<O/>"/>'), "bad_xml"),
    "an escaped tag in an attribute": (block('<remove element="&lt;O/&gt;"/>'), "unknown_element"),
    "an escaped edit as text": (block("&lt;remove element='O'/&gt;"), "bad_xml"),
    "a character that XML forbids": (block('<remove element="O&#0;"/>'), "bad_xml"),
    "a surrogate by number": (block('<remove element="&#xD800;"/>'), "bad_xml"),
    "a number beyond Unicode": (block('<remove element="&#x110000;"/>'), "bad_xml"),
    "full-width brackets": ("＜modification＞＜/modification＞", "no_block"),  # noqa: RUF001 - the attack
    "an upper-case block": (block("").upper(), "no_block"),
    "a prefixed block": ('<m:modification xmlns:m="u"/>', "no_block"),
    "a redeclared prefix": (block('<xml:add element="O" at="void"/>'), "unknown_edit"),
    "an undeclared prefix": (block('<x:add element="O" at="void"/>'), "bad_xml"),
    "an attribute in a namespace": (block('<remove xml:space="preserve" element="O"/>'), "bad_attribute"),
    "a namespace on the block": ('<modification xmlns="u"><add/></modification>', "unknown_edit"),
    "a cyrillic element": (block('<remove element="О"/>'), "unknown_element"),  # noqa: RUF001 - the attack
    "an element with a zero-width space": (block('<remove element="O\u200b"/>'), "unknown_element"),
    "an element with a line break": (block('<remove element="O&#10;"/>'), "unknown_element"),
    "an edit with a combining mark": (block('<add\u0301 element="O" at="void"/>'), "unknown_edit"),
    "four hundred attributes": (block(f"<remove {MANY}/>"), "bad_attribute"),
    "an attribute of four kilobytes": (block(f'<remove element="{"O" * 4000}"/>'), "unknown_element"),
    "a deep well": (block("<add>" * 300 + "</add>" * 300), "bad_xml"),
    "closing what was not opened": (block("</modification><modification>"), "many_blocks"),
    "a second block after the first": (f"{block('')}{block('')}", "many_blocks"),
    "an opening in an attribute": (block('<remove element="<modification>"/>'), "many_blocks"),
    "an answer inside the thinking": (f"<think>{block(GOOD)}</think>", "no_block"),
    "thinking inside the answer": (block("</think>"), "no_block"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_refused_with_a_code(name: str) -> None:
    """Each with the one that says what it is, and the reward of the stage."""
    text, code = ATTACKS[name]
    assert code_of(text) == code
    assert CODES[code].reward == STAGE_REWARDS["parse"] == -1.0


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_opens_a_file_or_a_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded, whatever is named."""

    def forbidden(*args: object, **_: object) -> None:
        raise AssertionError(args)

    with monkeypatch.context() as guarded:
        guarded.setattr(builtins, "open", forbidden)
        guarded.setattr(socket, "socket", forbidden)
        assert code_of(ATTACKS[name][0]) is not None


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_becomes_a_result(name: str) -> None:
    """What does not parse is answered at once, in words that fit a log and JSON."""
    result = outcome(ATTACKS[name][0])
    assert isinstance(result, Result)
    assert (result.id, result.ok, result.reward, result.code) == ("c0", False, -1.0, ATTACKS[name][1])
    assert json.loads(json.dumps(plain(result)))["message"] == result.message


def test_the_parser_sees_little_and_no_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all attacks, of megabytes, of bytes that are no text."""
    seen: list[bytes] = []
    real: Callable[[bytes], Any] = ET.fromstring

    def fromstring(data: bytes) -> Any:
        seen.append(data)
        return real(data)

    monkeypatch.setattr(ET, "fromstring", fromstring)
    huge = [block("é" * 2**20), "<" * 2**20, block("<remove element='O'/>") + "x" * 2**20, "\ud800" * 2**16]
    for text in [*huge, *(text for text, _ in ATTACKS.values())]:
        code_of(text)
    assert max(map(len, seen)) <= MAX_BYTES
    assert not any(b"<!" in data or b"<?" in data for data in seen)


# --- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("nan", "inf", "-inf", "1e999", "0x10", "1_0", "1,5", "\u0661", "\uff11", "1.5.1", "--1", "+-1", ".", "e1", "1e"),
        *("1e100", "10.0000001", "-10.0000001", "1" * 400, "1.5%", "one", "1;2", "1\u00a0", "½"),
    ],
)  # fmt: skip
def test_what_is_no_percentage(text: str) -> None:
    """Python's float() takes several of these."""
    assert code_of(block(f'<strain axis="a" percent="{text}"/>')) == "bad_attribute"


@pytest.mark.parametrize(
    ("text", "value"), [("1&#48;", 10.0), ("&#45;2", -2.0), ("-0", 0.0), ("1e1", 10.0), ("000.5", 0.5)]
)
def test_what_is_one(text: str, value: float) -> None:
    """Character references are XML's own way to write a digit; zero has no sign."""
    (edit,) = parse(block(f'<strain axis="a" percent="{text}"/>'), ELEMENTS)
    assert isinstance(edit, Strain)
    assert (edit.percent, math.copysign(1, edit.percent)) == (value, math.copysign(1, value))


@pytest.mark.parametrize("text", ["-1", "1.0", "1e0", " 1", "+1", "", "0x1", "1234567", "²", "a"])
def test_what_is_no_site(text: str) -> None:
    """An index is a few plain digits."""
    assert code_of(block(f'<remove element="O" site="{text}"/>')) == "bad_attribute"


@pytest.mark.parametrize(
    "text",
    [
        "0 0 1",
        "0 0 1.0",
        "0 0 0.99999999999999999999",
        "0 0",
        "0 0 0 0",
        "0,0,0",
        "Void",
        "void void",
        "1e-400 0 1",
        "",
    ],
)
def test_what_is_no_place(text: str) -> None:
    """Three fractions in [0, 1), as they are after rounding, or void."""
    assert code_of(block(f'<add element="O" at="{text}"/>')) == "bad_attribute"


# --- answers that are nearly right -------------------------------------------------------------------------------

elements = st.sampled_from(ELEMENTS)
edits = st.one_of(
    st.builds(Substitute, elements, elements, st.none() | st.integers(0, 30)),
    st.builds(Exchange, elements, elements),
    st.builds(Remove, elements, st.none() | st.integers(0, 30)),
    st.builds(Add, elements, st.none() | st.just((0.25, 0.5, 0.0))),
    st.builds(Strain, st.sampled_from(AXES), st.integers(-20, 20).map(lambda p: p / 2)),
)
answers = st.lists(edits, min_size=1, max_size=4).map(lambda made: render(tuple(made)))
LETTERS = "<>/=\"'&;!?[]- \n\t\x00\x1b\u202e\ud800é0129.abNO"


@st.composite
def mutants(draw: st.DrawFn) -> str:
    """A good answer with up to four characters changed, taken out, put in, or a stretch of it doubled."""
    text = draw(answers)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        how = draw(st.sampled_from(["change", "drop", "insert", "double", "cut"]))
        letter = draw(st.sampled_from(LETTERS))
        span = draw(st.integers(0, 30))
        text = {
            "change": text[:at] + letter + text[at + 1 :],
            "drop": text[:at] + text[at + 1 :],
            "insert": text[:at] + letter + text[at:],
            "double": text[:at] + text[at : at + span] + text[at:],
            "cut": text[:at],
        }[how]
    return text


def is_within_the_grammar(edit: Edit) -> bool:
    """As the documentation has it, written down a second time."""
    match edit:
        case Substitute(old, new, site):
            return {old, new} <= set(ELEMENTS) and (site is None or 0 <= site < 10**6)
        case Exchange(a, b):
            return {a, b} <= set(ELEMENTS)
        case Remove(element, site):
            return element in ELEMENTS and (site is None or 0 <= site < 10**6)
        case Add(element, at):
            return element in ELEMENTS and (at is None or (all(0 <= x < 1 for x in at)))
        case Strain(axis, percent):
            return axis in AXES and -10 <= percent <= 10


@given(mutants())
def test_whatever_is_accepted_is_within_the_grammar_and_can_be_written_again(text: str) -> None:
    """One to four edits, each in range; rendered and parsed they are the same."""
    code = code_of(text)
    if code is not None:
        assert CODES[code].stage == "parse"
        return
    found = parse(text, ELEMENTS)
    assert 1 <= len(found) <= 4
    assert all(map(is_within_the_grammar, found))
    assert parse(render(found), ELEMENTS) == found


@given(mutants())
def test_what_is_said_of_an_answer_can_be_logged(text: str) -> None:
    """One line without control or direction characters, of bounded length, that UTF-8 can hold."""
    result = outcome(text)
    if not isinstance(result, Result):
        return
    message = result.message or ""
    assert 0 < len(message) < 400
    assert [c for c in message if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}] == []
    assert message.encode("utf-8")


@given(answers, st.text(alphabet=st.characters(exclude_characters="<"), max_size=200))
def test_words_around_a_good_answer_change_nothing(answer: str, words: str) -> None:
    """Before and after; also thinking that was closed."""
    wanted = parse(answer, ELEMENTS)
    assert parse(f"{words}{answer}{words}", ELEMENTS) == wanted
    assert parse(f"<think>{words}{answer}{answer}</think>{words}{answer}", ELEMENTS) == wanted


@given(answers)
def test_any_beginning_of_a_good_answer_is_cut_off_and_nothing_else(answer: str) -> None:
    """As the token limit leaves it: never half of what was meant."""
    for end in range(len(answer) - 1):
        assert code_of(answer[:end]) == "no_block"


@given(answers, st.sampled_from(sorted(ELEMENTS)))
def test_an_element_that_the_surrogate_lacks_is_refused_wherever_it_is(answer: str, gone: str) -> None:
    """The same answer, fewer elements."""
    fewer = [element for element in ELEMENTS if element != gone]
    found = outcome(answer, fewer)
    assert (isinstance(found, Result) and found.code == "unknown_element") == (f'"{gone}"' in answer)
