"""Scalars in TensorBoard's event messages, whichever way they were written: ``simple_value`` or a tensor of one number."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from dipstick.importers.protowire import Message, varint
from dipstick.importers.wandb_system import stamp_ns

VERSION: Final = "brain.Event:"
"""How the first event of a file begins."""

_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = 1, 2, 3, 5
_TAG, _SIMPLE, _TENSOR = 1, 2, 8
_DTYPE, _SHAPE, _CONTENT = 1, 2, 4

_FORMS: Final = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
"""By TensorFlow's number of the type: float, double, int32, int64, half."""

_LISTS: Final = {1: 5, 2: 6, 3: 7, 9: 10}
"""The field of each type that holds values one by one; a half only comes as content."""

_INTEGERS: Final = (3, 9)


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        t_ns: When it was written, Unix time; None: no time of a log.
        step: As the writer counts; TensorBoard leaves out a 0.
        version: What the first event of a file says, else empty.
        scalars: Finite numbers by tag.
        others: Tags of values that are none: pictures, texts, histograms, NaN.
    """

    t_ns: int | None
    step: int
    version: str
    scalars: dict[str, float]
    others: tuple[str, ...]


def event(data: bytes) -> Event:
    """Decode one event.

    Raises:
        WireError: It is damaged.
    """
    message = Message(data)
    summary = message.message(_SUMMARY)
    values = [Message(blob) for blob in summary.blobs(1)] if summary is not None else []
    found = [(value.text(_TAG), _scalar(value)) for value in values]
    scalars = {tag: value for tag, value in found if value is not None and math.isfinite(value)}
    return Event(
        stamp_ns(message.number(_WALL_TIME)), message.integer(_STEP) or 0, message.text(_FILE_VERSION), scalars,
        tuple(tag for tag, _ in found if tag not in scalars),
    )  # fmt: skip


def _scalar(value: Message) -> float | None:
    """A float written directly, or a tensor of one number."""
    if _SIMPLE in value:
        return value.number(_SIMPLE)
    tensor = value.message(_TENSOR)
    if tensor is None or not _is_single(tensor.message(_SHAPE)):
        return None
    kind = tensor.integer(_DTYPE) or 0
    form, content = _FORMS.get(kind), tensor.blob(_CONTENT)
    if form is None:
        return None
    if content is not None:
        return float(struct.unpack(form, content)[0]) if len(content) == struct.calcsize(form) else None
    return _listed(tensor, kind, form)


def _listed(tensor: Message, kind: int, form: str) -> float | None:
    """The one value of the list of the tensor's type, packed or not; an empty list of a scalar means 0."""
    number = _LISTS.get(kind)
    if number is None:
        return None
    if kind in _INTEGERS:
        packed = tensor.blob(number)
        plain = tensor.integer(number)
        if packed:
            unsigned = varint(packed, 0)[0]
            plain = unsigned - (1 << 64 if unsigned >> 63 else 0)
        return float(plain or 0)
    packed = tensor.blob(number)
    if packed is None:
        return 0.0
    return float(struct.unpack_from(form, packed)[0]) if len(packed) >= struct.calcsize(form) else None


def _is_single(shape: Message | None) -> bool:
    """No dimensions, or all of size 1."""
    return shape is None or all(Message(dim).integer(1) == 1 for dim in shape.blobs(2))
