"""A trace in Perfetto's own protobuf (``.pftrace``), by the official builder: ``pip install 'dipstick[perfetto]'``.

Track descriptors form the tree, slices are begin and end events, counters are doubles with their unit, facts are debug
annotations, and a flow has one id on both of its slices. Packets are in the order of time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from dipstick.errors import DipstickError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.show.trace_events import Slice, Trace, Track

_SEQUENCE: Final = 1
_END, _COUNTER, _BEGIN, _INSTANT = 0, 1, 2, 3
"""The order of what happens at one time: what ends, ends first."""


def render(trace: Trace) -> bytes:
    """The whole file.

    Raises:
        DipstickError: The perfetto package is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb  # noqa: PLC0415 - an extra
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder  # noqa: PLC0415 - an extra
    except ImportError:
        raise DipstickError(
            ".pftrace needs the perfetto package, which is not installed",
            fix="pip install 'dipstick[perfetto]', or write .json.gz, which ui.perfetto.dev opens, too",
        ) from None
    builder: Any = TraceProtoBuilder()
    for track in trace.tracks:
        _describe(builder.add_packet(), track)
    for t, _, _, kind, what, key in sorted(_happenings(trace), key=lambda h: h[:3]):
        packet = builder.add_packet()
        packet.timestamp = t
        packet.trusted_packet_sequence_id = _SEQUENCE
        _event(packet.track_event, kind, what, key, pb.TrackEvent)
    made: bytes = builder.serialize()
    return made


def _describe(packet: Any, track: Track) -> None:
    """Where a track is in the tree; children stay in the order in which they were made."""
    described = packet.track_descriptor
    described.uuid = track.key
    described.name = track.name
    if track.parent:
        described.parent_uuid = track.parent
        described.sibling_order_rank = track.key
    if track.is_counter:
        described.counter.unit_name = track.unit
    packet.trusted_packet_sequence_id = _SEQUENCE


Happening = tuple[int, int, int, int, "Slice | float | None", int]


def _happenings(trace: Trace) -> Iterator[Happening]:
    """(time, order at one time, outer slices first, what, of what, on which track)."""
    for one in trace.slices:
        if one.t1 > one.t0:
            yield one.t0, _BEGIN, -one.t1, _BEGIN, one, one.track
            yield one.t1, _END, -one.t0, _END, None, one.track
        else:
            yield one.t0, _INSTANT, 0, _INSTANT, one, one.track
    for counter in trace.counters:
        for t, value in zip(counter.t.tolist(), counter.value.tolist(), strict=True):
            if math.isfinite(value):
                yield t, _COUNTER, 0, _COUNTER, value, counter.track


def _event(event: Any, kind: int, what: Slice | float | None, track: int, types: Any) -> None:
    event.track_uuid = track
    if kind == _END:
        event.type = types.TYPE_SLICE_END
    elif isinstance(what, float):
        event.type = types.TYPE_COUNTER
        event.double_counter_value = what
    elif what is not None:
        event.type = types.TYPE_SLICE_BEGIN if kind == _BEGIN else types.TYPE_INSTANT
        event.name = what.name
        event.categories.append("dipstick")
        event.flow_ids.extend(what.flows)
        for name, value in what.args.items():
            _annotate(event.debug_annotations.add(), name, value)


def _annotate(annotation: Any, name: str, value: float | str) -> None:
    annotation.name = name
    if isinstance(value, str):
        annotation.string_value = value
    elif isinstance(value, int):
        annotation.int_value = value
    else:
        annotation.double_value = value
