"""The ``traceEvents`` of a Chrome trace of any size, a few megabytes at a time.

A piece of the file is cut where one object ends and another begins, and decoded as a list. What precedes the cut began at
an event, so a piece that decodes is whole events, whatever its strings hold; one that does not is cut elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dipstick.errors import ImportFormatError
from dipstick.importers.chunks import open_plain, read_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PIECE: Final = 4 << 20
LARGEST_EVENT: Final = 8 << 20
"""Data without the end of an event beyond this is damaged: only what is whole in it is kept."""
LARGEST_HEADER: Final = 16 << 20
TAIL: Final = 1 << 20
"""What follows the events is kept up to here: metadata that some writers put last."""
TRIES: Final = 4

_START: Final = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_BETWEEN: Final = re.compile(rb"\}\s*,\s*(?=\{)")
_END: Final = re.compile(rb"\}\s*\]")
_EVENT: Final = re.compile(rb',\s*(?=\{\s*"(?:ph|name|cat)"\s*:)')
_NO_NUMBER: Final = re.compile(rb":\s*-?(?:NaN|nan|Infinity|inf)\b")
BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Args(msgspec.Struct):
    """What we need of an event's arguments."""

    device: Any = None
    stream: Any = None
    bytes: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    members: Any = msgspec.field(default=None, name="Group size")
    elements: Any = msgspec.field(default=None, name="In msg nelems")


class Event(msgspec.Struct):
    """One event; times in microseconds. Anything of a wrong type is the reader's to refuse."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    args: Args | None = None


@dataclass
class TraceFile:
    """A trace being read.

    Attributes:
        header: What stands beside the events: at first what comes before them, after reading all of it.
        dropped: Events that could not be decoded, by reason.
    """

    path: Path
    damage: Callable[[str], None]
    header: dict[str, Any] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    _decoder: Any = field(default_factory=lambda: msgspec.json.Decoder(list[Event]))

    def events(self) -> Iterator[tuple[list[Event], int]]:
        """Lists of events, and how many bytes of the file are read; the first list is empty (the header is known then).

        Raises:
            ImportFormatError: There are no ``traceEvents``.
        """
        with open_plain(self.path) as (plain, raw):
            rest = self._begin(plain)
            yield [], raw.tell()
            while more := read_block(plain, PIECE, self.damage):
                found, rest = self._cut(rest + more)
                yield found, raw.tell()
                if rest is None:
                    return
            found, rest = self._last(rest)
            yield found, raw.tell()

    def _begin(self, plain: Any) -> bytes:
        """Read up to the first event; what comes after stays."""
        data = read_block(plain, PIECE, self.damage).removeprefix(b"\xef\xbb\xbf").lstrip()
        if data.startswith(b"["):
            return data[1:].lstrip()
        while (found := _START.search(data)) is None:
            more = read_block(plain, PIECE, self.damage)
            if not more or len(data) > LARGEST_HEADER:
                raise ImportFormatError("it has no traceEvents in its first 16 MiB.", where=str(self.path))
            data += more
        self.header = _object(data[: found.end()] + b"]}")
        return data[found.end() :].lstrip()

    def _cut(self, data: bytes) -> tuple[list[Event], Any]:
        """Whole events of the data, and the rest; None as the rest once the list has ended."""
        at = len(data)
        for _ in range(TRIES):
            found = None
            while found is None and (at := data.rfind(b"}", 0, at)) >= 0:
                found = _BETWEEN.match(data, at)
            if found is None:
                break
            if (events := self._decode(data[: at + 1])) is not None:
                return events, data[found.end() :]
        if (ended := self._ended(data)) is not None:
            return ended, None
        return ([], data) if len(data) <= LARGEST_EVENT else self._salvage(data)

    def _last(self, data: bytes) -> tuple[list[Event], bytes]:
        """Events of what is left at the end of the file."""
        if (ended := self._ended(data)) is not None:
            return ended, b""
        events, rest = self._salvage(data)
        if (ended := self._ended(rest)) is not None:
            return [*events, *ended], b""
        self.damage("the file is cut: it ends inside its list of events; what comes before is used")
        if rest.strip():
            self.dropped["an event that can't be decoded"] += 1
        return events, b""

    def _ended(self, data: bytes) -> list[Event] | None:
        """The events before the end of the list, if it ends in the data; what follows goes to the header."""
        if data.lstrip().startswith(b"]"):
            ends = [data.index(b"]")]
        else:
            ends = [found.end() - 1 for _, found in zip(range(TRIES), _END.finditer(data), strict=False)]
        for end in ends:
            if (events := self._decode(data[:end])) is not None:
                self.header |= _object(b"{" + data[end + 1 :][:TAIL].lstrip().removeprefix(b","))
                return events
        return None

    def _decode(self, data: bytes) -> list[Event] | None:
        """The data as events; None if it does not consist of whole ones."""
        whole = b"[" + data + b"]"
        try:
            return self._decoder.decode(whole)  # type: ignore[no-any-return]
        except BROKEN:
            pass
        whole = _NO_NUMBER.sub(b":null", whole).decode("utf-8", "replace").encode()
        try:
            pieces = msgspec.json.decode(whole, type=list[msgspec.Raw])
        except BROKEN:
            return None
        return [event for piece in pieces if (event := self._one(piece)) is not None]

    def _one(self, piece: msgspec.Raw | bytes) -> Event | None:
        try:
            return msgspec.json.decode(piece, type=Event)
        except BROKEN:
            self.dropped["an event that can't be decoded"] += 1
            return None

    def _salvage(self, data: bytes) -> tuple[list[Event], bytes]:
        """Of data that is damaged somewhere, the events that are whole, and the last piece, which may go on."""
        *pieces, last = _EVENT.split(data)
        if len(last) > LARGEST_EVENT:
            self.dropped["an event that can't be decoded"] += 1
            last = b""
        return [event for piece in pieces if (event := self._one(piece)) is not None], last


def _object(data: bytes) -> dict[str, Any]:
    """JSON beside the events; empty where it is damaged."""
    try:
        found = msgspec.json.decode(data)
    except BROKEN:
        return {}
    return (
        {key: value for key, value in found.items() if key != "traceEvents"}
        if isinstance(found, dict)
        else {}
    )
