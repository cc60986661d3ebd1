"""Tracebacks that Python printed to a rank's stderr."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hanglab.recorder.case.records import StackFrame

_HEAD = "Traceback (most recent call last):"
#: What torch.distributed.checkpoint writes above the traceback of another rank (api.py,
#: CheckpointException); the number is that within the group that it saves in.
_OF_RANK = re.compile(re.escape(_HEAD) + r" \(RANK (\d+)\)")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
_ERROR = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|\w*))"
    r"(?::\s?(?P<message>.*))?$"
)
#: What faulthandler writes when the process is about to die of a signal.
_FATAL = re.compile(r"^Fatal Python error: (?P<message>.+)$")
_CURRENT = re.compile(r"^Current thread 0x[0-9a-f]+ .*most recent call first")
_DUMPED = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
#: torchrun and torchelastic prefix each line of a rank with its name.
_PREFIX = re.compile(r"^\[[^\]]*rank\d+\]:\s?")


#: What Python prints between an exception and one that it led to.
_LED_TO = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


@dataclass(frozen=True)
class Traceback:
    """``frames`` innermost first, as everywhere.

    ``because`` are the exceptions that led to it, the latest first, each as ``type: message``.
    """

    type: str
    message: str
    frames: tuple[StackFrame, ...]
    because: tuple[str, ...] = ()


def printed_tracebacks(text: str) -> list[Traceback]:
    """All complete tracebacks in ``text``, in the order in which they were printed."""
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    found: list[Traceback] = []
    chained = False
    i = 0
    while i < len(lines):
        if lines[i].strip() != _HEAD:
            chained = chained or lines[i].strip() in _LED_TO
            i += 1
            continue
        i += 1
        frames: list[StackFrame] = []
        while i < len(lines) and (lines[i].startswith("  ") or not lines[i].strip()):
            match = _FRAME.match(lines[i])
            if match:
                frames.append(StackFrame(match["function"], match["file"], int(match["line"])))
            i += 1
        if i < len(lines):
            match = _ERROR.match(lines[i])
            if match and frames:
                above = found[-1] if chained and found else None
                led = () if above is None else (f"{above.type}: {above.message}", *above.because)
                message = match["message"] or ""
                found.append(Traceback(match["type"], message, tuple(reversed(frames)), led))
                chained = False
    return found


def tracebacks_of_ranks(text: str) -> dict[int, Traceback]:
    """The first traceback of each rank in an error that lists those of the ranks that failed."""
    _, *rest = _OF_RANK.split(text)
    found: dict[int, Traceback] = {}
    for rank, body in zip(map(int, rest[::2]), rest[1::2], strict=True):
        for traceback in printed_tracebacks(_HEAD + body)[:1]:
            found.setdefault(rank, traceback)
    return found


def fatal_error(text: str) -> Traceback | None:
    """Traceback that faulthandler wrote of the thread in which the process died; None without."""
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    message = ""
    for i, line in enumerate(lines):
        match = _FATAL.match(line)
        if match:
            message = match["message"]
        elif message and _CURRENT.match(line):
            frames = []
            for dumped in map(_DUMPED.match, lines[i + 1 :]):
                if dumped is None:
                    break
                frames.append(StackFrame(dumped["function"], dumped["file"], int(dumped["line"])))
            return Traceback("", message, tuple(frames))
    return None
