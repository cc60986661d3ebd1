"""Stack of a rank while a trace was taken of it, out of the trace.

With Python stacks a trace holds one ``python_function`` event per frame, named
``file(line): function``; a frame that was there all the time spans the whole
trace, and its line is the one that it stood at.  That is what a hung rank's trace
consists of.  Files lack the entry of ``sys.path`` below which they were found.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import PurePath

import msgspec

from hanglab.analyzer.facts.thresholds import LASTING_SHARE
from hanglab.recorder.case.decoders import decoder_of
from hanglab.recorder.case.records import (
    Clock,
    CodeShape,
    Python,
    StackFrame,
    StackSample,
    ThreadStack,
)

_NAME = re.compile(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)


class _TraceEvent(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    tid: int | str = 0


class _Trace(msgspec.Struct):
    traceEvents: list[_TraceEvent] = []
    baseTimeNanoseconds: int = 0


def stack_of_trace(
    data: bytes, pid: int, python: Python | None, shapes: Sequence[CodeShape]
) -> StackSample | None:
    """The stack that lasted through the trace; None where there was none, or no trace.

    ``shapes`` are the files of the user's code that are known in full.
    """
    try:
        trace: _Trace = decoder_of(_Trace, strict=False).decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    calls = [event for event in trace.traceEvents if event.cat == "python_function" and event.dur]
    if not calls:
        return None
    longest = max(calls, key=lambda event: event.dur)
    # Python numbers its threads in the order in which the profiler met them.
    lasting = [e for e in calls if e.tid == longest.tid and e.dur >= LASTING_SHARE * longest.dur]
    lasting.sort(key=lambda event: (event.ts, -event.dur))
    known = [shape.file for shape in shapes]
    frames = []
    for event in reversed(lasting):
        match = _NAME.fullmatch(event.name)
        if match is not None:
            file = _whole_path(match["file"], python, known)
            frames.append(StackFrame(match["function"], file, int(match["line"])))
    if not frames:
        return None
    at = Clock(trace.baseTimeNanoseconds + int(longest.ts * 1e3), 0)
    return StackSample(at, pid, "rank", [ThreadStack(frames, main=True)], "trace", capture=False)


def _whole_path(file: str, python: Python | None, facts: Iterable[str]) -> str:
    """The path with what the profiler cut off, as far as it can be told."""
    if file.startswith(("/", "<")):
        return file
    parts = PurePath(file).parts
    for path in facts:
        if PurePath(path).parts[-len(parts) :] == parts:
            return path
    top = parts[0].removesuffix(".py")
    if python is not None and top in sys.stdlib_module_names and python.stdlib:
        return f"{python.stdlib[0]}/{file}"
    if python is not None and top in ("torch", "hanglab") and python.site:
        return f"{python.site[0]}/{file}"
    return file
