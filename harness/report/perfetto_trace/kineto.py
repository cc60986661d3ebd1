"""Kineto's traces of a rank, on the job's clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from hanglab.harness.report.perfetto_trace.lanes import Notes, Slice
from hanglab.recorder.case.decoders import decoder_of


class _KinetoEvent(msgspec.Struct):
    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: int | str = 0
    tid: int | str = 0
    args: dict[str, object] = {}


class _KinetoTrace(msgspec.Struct):
    traceEvents: list[_KinetoEvent] = []
    baseTimeNanoseconds: int = 0


@dataclass
class KinetoThread:
    """Events of one thread, or of one stream of a device."""

    name: str
    slices: list[Slice] = field(default_factory=list)


def kineto_threads(data: bytes, ahead_ns: int) -> list[KinetoThread]:
    """Threads of a trace with what they did; none of a file that is no trace.

    Times of events are microseconds since ``baseTimeNanoseconds`` on the host's wall clock, which
    is ``ahead_ns`` ahead of the job's.
    """
    try:
        trace: _KinetoTrace = decoder_of(_KinetoTrace, strict=False).decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return []
    threads: dict[tuple[object, object], KinetoThread] = {}
    names = dict(_names(trace.traceEvents))
    base = trace.baseTimeNanoseconds - ahead_ns
    for event in trace.traceEvents:
        # "Trace" spans are the profiler's own frame around all others.
        if event.ph != "X" or not event.dur or event.cat == "Trace":
            continue
        key = event.pid, event.tid
        if key not in threads:
            threads[key] = KinetoThread(names.get(key) or f"thread {event.tid}")
        begin = base + round(event.ts * 1000)
        end = begin + round(event.dur * 1000)
        notes: Notes = {"category": event.cat} if event.cat else {}
        threads[key].slices.append(Slice(begin, end, event.name, notes))
    return list(threads.values())


def _names(events: list[_KinetoEvent]) -> Iterator[tuple[tuple[object, object], str]]:
    for event in events:
        if event.ph == "M" and event.name == "thread_name":
            yield (event.pid, event.tid), str(event.args.get("name", ""))
