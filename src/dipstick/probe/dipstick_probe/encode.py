"""Rows to JSON lines, on the writer's thread. Only numbers, strings and plain containers get through.

A row is ``(encoder, *fields)``. No value of the training code is ever formatted: what is no number, string or
plain container is written as the name of its type, so a hostile ``__repr__`` or ``__str__`` is never called.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

try:
    from _json import encode_basestring_ascii as _quoted  # without the package json: it costs a start 4 ms
except ImportError:  # a Python without the accelerator
    from json.encoder import py_encode_basestring_ascii as _quoted

LONGEST = 512
"""Characters of a string that are kept."""
WIDEST = 256
"""Items of a container that are kept."""
DEEPEST = 5
INT64 = 1 << 63

_known: dict[str, str] = {}


def quote(text: str) -> str:
    """A JSON string; names and paths repeat, so they are encoded once."""
    found = _known.get(text) if type(text) is str else None
    if found is not None:
        return found
    plain = str.__str__(text)[:LONGEST]
    encoded: str = _quoted(plain.encode("utf-8", "replace").decode())  # a lone surrogate is no JSON
    if len(_known) > 4096:  # noqa: PLR2004 - names do not come in thousands; payloads may
        _known.clear()
    _known[plain] = encoded
    return encoded


def dumps(value: Any, depth: int = 0) -> str:
    """JSON of a plain value; foreign objects become the name of their type."""
    kind = type(value)
    if value is None or kind is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if kind in (int, float):
        return _number(value)
    if issubclass(kind, str):
        return quote(value)
    if depth < DEEPEST and kind is dict:
        items = list(value.items())[:WIDEST]
        return (
            "{"
            + ",".join(f"{quote(k)}:{dumps(v, depth + 1)}" for k, v in items if issubclass(type(k), str))
            + "}"
        )
    if depth < DEEPEST and kind in (list, tuple):
        return "[" + ",".join(dumps(item, depth + 1) for item in value[:WIDEST]) + "]"
    return quote(f"<{kind.__name__}>")


def _number(value: float) -> str:
    """Integers of 64 bits and finite floats; JSON has no others."""
    if type(value) is int:
        return str(value) if -INT64 <= value < INT64 else "null"
    return repr(value) if value - value == 0.0 else "null"


def span(row: tuple[Any, ...]) -> str:
    """``(span, name, a, b, tid, step, parent, phase, file, line, extra)``; absent fields are left out."""
    _, name, a, b, tid, step, parent, phase, file, line, extra = row
    text = f'{{"k":"span","n":{quote(name)},"a":{a},"b":{b},"tid":{tid}'
    if step is not None:
        text += f',"step":{step}'
    if parent is not None:
        text += f',"p":{quote(parent)}'
    if phase is not None:
        text += f',"ph":{quote(phase)}'
    if file is not None:
        text += f',"f":{quote(file)},"l":{line}'
    if extra:
        text += f',"x":{dumps(extra)}'
    return text + "}\n"


def line(row: tuple[Any, ...]) -> str:
    """``(line, kind, fields)``: any other kind; None fields are left out."""
    _, kind, fields = row
    parts = [f",{quote(key)}:{dumps(value)}" for key, value in fields.items() if value is not None]
    return f'{{"k":"{kind}"' + "".join(parts) + "}\n"


class Open:
    """A row that may still get fields: what a job's result weighs is known just after the job ended.

    Fields that arrive before the writer's next look join the row; later ones get a line of their own with the
    same ``key`` fields, and the reader joins them.
    """

    __slots__ = ("fields", "key", "kind", "written")

    def __init__(self, kind: str, key: dict[str, Any], fields: dict[str, Any]) -> None:
        self.kind = kind
        self.key = key
        self.fields = fields
        self.written = False

    def row(self) -> tuple[Callable[[Any], str], Open]:
        """What goes into the ring."""
        return open_line, self

    def add(self, put: Callable[[Any], None], **fields: Any) -> None:
        """Add fields, to the row or after it."""
        if self.written:
            put((line, self.kind, {**self.key, **fields}))
        else:
            self.fields.update(fields)


def open_line(row: tuple[Any, Open]) -> str:
    """``(open_line, Open)``; from now on its fields are closed."""
    row[1].written = True
    return line((None, row[1].kind, {**row[1].key, **row[1].fields}))
