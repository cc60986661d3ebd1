"""Packets of a Perfetto trace: tracks, slices, instants, counters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from hanglab.analyzer.plain_text import shown
from hanglab.harness.errors import MissingExtra
from hanglab.harness.report.perfetto_trace.lanes import (
    Lane,
    Notes,
    Slice,
    begins_and_ends,
    lanes_of,
)

#: All packets are of one writer.
_SEQUENCE = 1
#: Numbers of clocks in `perfetto/protos/perfetto/common/builtin_clock.proto`.
_REALTIME, _BOOTTIME = 1, 6


class TraceWriter:
    """Writes packets one by one, so that a trace of any size needs little memory.

    Times are wall nanoseconds, and a snapshot says that the trace's own clock is the wall clock.
    Raises MissingExtra without the package ``perfetto``.
    """

    def __init__(self, file: IO[bytes]) -> None:
        try:
            from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
                CounterDescriptor,
                TrackDescriptor,
                TrackEvent,
            )
            from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
        except ImportError as error:
            raise MissingExtra(
                "A trace needs the package perfetto, which is not installed.",
                "pip install 'hanglab[trace]'",
            ) from error
        self._builder = StreamingTraceProtoBuilder(file)
        self._event: Any = TrackEvent
        self._descriptor: Any = TrackDescriptor
        self._counter: Any = CounterDescriptor
        self._tracks = 0

    def clock(self, wall_ns: int) -> None:
        """Says that the trace's clock is the wall clock."""
        packet = self._builder.create_packet()
        for number in (_REALTIME, _BOOTTIME):
            packet.clock_snapshot.clocks.add(clock_id=number, timestamp=wall_ns)
        self._write(packet)

    def process(self, name: str, pid: int) -> int:
        """A track for a process, and the number that others name it by."""
        number, packet = self._track()
        packet.track_descriptor.process.pid = pid
        packet.track_descriptor.process.process_name = shown(name)
        self._write(packet)
        return number

    def track(self, name: str, parent: int | None = None, *, unit: str | None = None) -> int:
        """A track below another one; with ``unit`` for the values of a counter."""
        number, packet = self._track()
        packet.track_descriptor.name = shown(name)
        packet.track_descriptor.child_ordering = self._descriptor.EXPLICIT
        packet.track_descriptor.sibling_order_rank = number
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
        if unit is not None:
            packet.track_descriptor.counter.unit_name = unit
            packet.track_descriptor.counter.unit = self._counter.UNIT_UNSPECIFIED
        self._write(packet)
        return number

    def slices(self, name: str, parent: int, slices: Iterable[Slice], *, nest: bool) -> None:
        """Slices on a track, and on more of its name where they do not fit on one."""
        for lane in lanes_of(slices, nest=nest):
            self._lane(self.track(name, parent), lane)

    def _lane(self, track: int, lane: Lane) -> None:
        for at, one in begins_and_ends(lane):
            if one is None:
                self._write(self._event_packet(track, at, self._event.TYPE_SLICE_END))
                continue
            packet = self._event_packet(track, at, self._event.TYPE_SLICE_BEGIN, one.name)
            if one.flow is not None:
                packet.track_event.flow_ids.append(one.flow)
            _annotate(packet.track_event, one.notes or {})
            self._write(packet)

    def instant(self, track: int, at_ns: int, name: str, notes: Notes | None = None) -> None:
        packet = self._event_packet(track, at_ns, self._event.TYPE_INSTANT, name)
        _annotate(packet.track_event, notes or {})
        self._write(packet)

    def value(self, track: int, at_ns: int, value: float) -> None:
        """A counter's value from ``at_ns`` on."""
        packet = self._event_packet(track, at_ns, self._event.TYPE_COUNTER)
        packet.track_event.double_counter_value = value
        self._write(packet)

    def _track(self) -> tuple[int, Any]:
        self._tracks += 1
        packet = self._builder.create_packet()
        packet.track_descriptor.uuid = self._tracks
        return self._tracks, packet

    def _event_packet(self, track: int, at_ns: int, kind: int, name: str = "") -> Any:
        packet = self._builder.create_packet()
        packet.timestamp = at_ns
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        if name:
            packet.track_event.name = shown(name)
        return packet

    def _write(self, packet: Any) -> None:
        packet.trusted_packet_sequence_id = _SEQUENCE
        self._builder.write_packet(packet)


def _annotate(event: Any, notes: Notes) -> None:
    for name, value in notes.items():
        note = event.debug_annotations.add(name=name)
        if isinstance(value, bool):
            note.bool_value = value
        elif isinstance(value, int):
            note.int_value = value
        else:
            note.string_value = shown(value)
