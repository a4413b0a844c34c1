"""A completion's text to edits, or the first thing wrong with it. Nothing here imports ASE.

::

    modification = <modification> edit{1,4} </modification>
    edit = <substitute from="El" to="El" site="i"?/>
         | <exchange a="El" b="El"/>
         | <remove element="El" site="i"?/>
         | <add element="El" at="x y z"|"void"/>
         | <strain axis="a|b|c|all" percent="p"/>

The text is a language model's: it may be anything. What reaches the XML parser is at most 4,096 bytes without ``<!`` and
``<?``, so there are no entities to expand and nothing to load.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from crystal_rl.errors import Rejection
from crystal_rl.messages import Add, Edit, Exchange, Remove, Strain, Substitute

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from crystal_rl.messages import Vector

MAX_BYTES = 4096
MAX_EDITS = 4
MAX_PERCENT = 10.0
AXES = ("a", "b", "c", "all")
_MAX_SITE_DIGITS = 6

# Attributes of each edit: required, then optional; `elements` are those that hold a chemical symbol.
_REQUIRED = {
    "substitute": ("from", "to"),
    "exchange": ("a", "b"),
    "remove": ("element",),
    "add": ("element", "at"),
    "strain": ("axis", "percent"),
}
_OPTIONAL = {"substitute": ("site",), "remove": ("site",)}
_ELEMENTS = {
    "substitute": ("from", "to"),
    "exchange": ("a", "b"),
    "remove": ("element",),
    "add": ("element",),
}
EDITS = tuple(_REQUIRED)

_OPENING = re.compile(r"<modification(?=[\s/>])")
_CLOSING = re.compile(r"</modification\s*>")
_EMPTY = re.compile(r"<modification\s*/>")
_NUMBER = re.compile(r"[+-]?(?:\d{1,12}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][+-]?\d{1,2})?", re.ASCII)
_SITE = re.compile(rf"\d{{1,{_MAX_SITE_DIGITS}}}", re.ASCII)


def parse(text: str, elements: Collection[str]) -> tuple[Edit, ...]:
    """The edits that a completion asks for.

    Args:
        text: The whole completion; what stands before the last ``</think>``, and around the block, is ignored.
        elements: The chemical symbols that the surrogate knows.

    Raises:
        Rejection: With a code of the stage ``parse``.
    """
    nodes = list(_parsed(_block(text)))
    _check_tags(nodes)
    for node in nodes:
        _check_attributes(node)
    edits = tuple(_READERS[node.tag](node) for node in nodes)
    for node in nodes:
        _check_elements(node, elements)
    return edits


def _block(text: str) -> str:
    """The one ``<modification>`` block of the answer."""
    answer = text[max(0, text.rfind("</think>")) :]
    openings = _OPENING.finditer(answer)
    first = next(openings, None)
    if first is None:
        raise Rejection("no_block", "the answer has no <modification>")
    if next(openings, None) is not None:
        raise Rejection("many_blocks", "the answer has more than one <modification>; exactly one is allowed")
    end = _EMPTY.match(answer, first.start()) or _CLOSING.search(answer, first.end())
    if end is None:
        raise Rejection(
            "no_block", "<modification> is not closed: was the answer cut off at the token limit?"
        )
    block = answer[first.start() : end.end()]
    size = len(block.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise Rejection("too_long", f"the block has {size:,} bytes; at most {MAX_BYTES:,} are allowed")
    return block


def _parsed(block: str) -> ET.Element:
    """The root element; children are the edits."""
    if "<!" in block or "<?" in block:
        raise Rejection("unsafe_xml", "declarations and entities are not allowed")
    try:
        # Lone surrogates become "?": text inside is refused anyway. No declarations, no entities, 4 kB at most.
        root = ET.fromstring(block.encode("utf-8", "replace"))  # noqa: S314 - as said above
    except ET.ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise Rejection("bad_xml", f"line {line}, column {column + 1}: {reason}") from None
    if root.attrib:
        raise Rejection(
            "bad_attribute", f"modification: unexpected attribute {_shown(next(iter(root.attrib)))}"
        )
    for piece in (root.text, *(part for node in root for part in (node.text, node.tail))):
        if piece and piece.strip():
            raise Rejection("bad_xml", f"text inside <modification>: {_shown(piece.strip())}")
    deep = next((node for node in root if len(node)), None)
    if deep is not None:
        raise Rejection("bad_xml", f"<{_shown(deep.tag, quote=False)}> must be empty")
    return root


def _check_tags(nodes: Sequence[ET.Element]) -> None:
    for node in nodes:
        if node.tag not in _REQUIRED:
            choices = f"{', '.join(EDITS[:-1])} or {EDITS[-1]}"
            raise Rejection("unknown_edit", f"unknown edit <{_shown(node.tag, quote=False)}>; use {choices}")
    if not 1 <= len(nodes) <= MAX_EDITS:
        raise Rejection("edit_count", f"{len(nodes)} edits; 1 to {MAX_EDITS} are allowed")


def _check_attributes(node: ET.Element) -> None:
    """All that are required, none beyond the optional ones."""
    required, optional = _REQUIRED[node.tag], _OPTIONAL.get(node.tag, ())
    for name in required:
        if name not in node.attrib:
            raise Rejection("bad_attribute", f"{node.tag}: {name} is missing")
    for name in node.attrib:
        if name not in required and name not in optional:
            raise Rejection("bad_attribute", f"{node.tag}: unexpected attribute {_shown(name)}")


def _check_elements(node: ET.Element, elements: Collection[str]) -> None:
    for name in _ELEMENTS.get(node.tag, ()):
        symbol = node.attrib[name]
        if symbol not in elements:
            raise Rejection("unknown_element", f"{_shown(symbol)} is not an element this surrogate knows")


# --- one edit ---------------------------------------------------------------------------------------------------


def _substitute(node: ET.Element) -> Edit:
    return Substitute(node.attrib["from"], node.attrib["to"], _site(node))


def _exchange(node: ET.Element) -> Edit:
    return Exchange(node.attrib["a"], node.attrib["b"])


def _remove(node: ET.Element) -> Edit:
    return Remove(node.attrib["element"], _site(node))


def _add(node: ET.Element) -> Edit:
    at = node.attrib["at"]
    return Add(node.attrib["element"], None if at == "void" else _fractions(at))


def _strain(node: ET.Element) -> Edit:
    axis, text = node.attrib["axis"], node.attrib["percent"]
    if axis not in AXES:
        raise Rejection("bad_attribute", f"strain: axis={_shown(axis)}: use a, b, c or all")
    percent = _number(text)
    if percent is None or not -MAX_PERCENT <= percent <= MAX_PERCENT:
        raise Rejection("bad_attribute", f"strain: percent={_shown(text)}: a number in [-10, 10] is needed")
    return Strain(axis, percent)  # type: ignore[arg-type] # one of AXES


_READERS: dict[str, Callable[[ET.Element], Edit]] = {
    "substitute": _substitute,
    "exchange": _exchange,
    "remove": _remove,
    "add": _add,
    "strain": _strain,
}


def _site(node: ET.Element) -> int | None:
    text = node.attrib.get("site")
    if text is None:
        return None
    if not _SITE.fullmatch(text):
        raise Rejection("bad_attribute", f"{node.tag}: site={_shown(text)}: an index, 0 or more, is needed")
    return int(text)


def _fractions(text: str) -> Vector:
    numbers = [_number(word) for word in text.split()]
    if len(numbers) != 3:  # noqa: PLR2004 - space has three dimensions
        raise Rejection("bad_attribute", f"add: at={_shown(text)}: three coordinates or void are needed")
    x, y, z = (math.nan if number is None else number for number in numbers)
    if not all(0 <= value < 1 for value in (x, y, z)):
        raise Rejection("bad_attribute", f"add: at={_shown(text)}: each coordinate must be in [0, 1)")
    return (x, y, z)


def _number(text: str) -> float | None:
    """A plain decimal number; None for ``nan``, ``1_000``, other digits than 0-9 and all else that float() takes."""
    return float(text) + 0.0 if _NUMBER.fullmatch(text) else None  # + 0.0: no minus zero


def _shown(text: str, *, quote: bool = True, limit: int = 40) -> str:
    """The model's words in a message: short, one line, printable."""
    short = text if len(text) <= limit else f"{text[:limit]}…"
    return repr(short) if quote else repr(short)[1:-1]


# --- and back ---------------------------------------------------------------------------------------------------


def render(edits: Sequence[Edit]) -> str:
    """The block that parses to these edits."""
    return f"<modification>{''.join(map(_tag, edits))}</modification>"


def _tag(edit: Edit) -> str:
    match edit:
        case Substitute(old, new, site):
            return f'<substitute from="{old}" to="{new}"{_site_attribute(site)}/>'
        case Exchange(a, b):
            return f'<exchange a="{a}" b="{b}"/>'
        case Remove(element, site):
            return f'<remove element="{element}"{_site_attribute(site)}/>'
        case Add(element, at):
            place = "void" if at is None else " ".join(map(decimal, at))
            return f'<add element="{element}" at="{place}"/>'
        case Strain(axis, percent):
            return f'<strain axis="{axis}" percent="{decimal(percent)}"/>'


def _site_attribute(site: int | None) -> str:
    return "" if site is None else f' site="{site}"'


def decimal(value: float) -> str:
    """The shortest number that reads back as the same."""
    return str(int(value)) if value.is_integer() else repr(value)
