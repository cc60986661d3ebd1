"""Tracebacks that Python printed to a rank's stderr."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hanglab.recorder.case.records import StackFrame

_HEAD = "Traceback (most recent call last):"
#: What torch.distributed.checkpoint writes above the traceback of another rank (api.py,
#: CheckpointException); the number is that within the group that it saves in.
_OF_RANK = re.compile(re.escape(_HEAD) + r" \(RANK (\d+)\)")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d{1,9}), in (?P<function>.+)$')
_ERROR = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|\w*))"
    r"(?::\s?(?P<message>.*))?$"
)
#: What faulthandler writes when the process is about to die of a signal.
_FATAL = re.compile(r"^Fatal Python error: (?P<message>.+)$")
_CURRENT = re.compile(r"^Current thread 0x[0-9a-f]+ .*most recent call first")
_DUMPED = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d{1,9}) in (?P<function>.+)$')
#: torchrun and torchelastic prefix each line of a rank with its name.
_PREFIX = re.compile(r"^\[[^\]]*rank\d+\]:\s?")
#: Behind a progress bar, or a logger's own words.
_HEAD_LINE = re.compile(r"Traceback \(most recent call last\)(?::\s*| ─+╮)$")
#: What groups of exceptions have before each line, and loguru before the frame that caught one.
_BARS, _CAUGHT = re.compile(r"^ +\| "), re.compile(r"^> (?=File )")
#: As rich has it: file, line and function.
_DRAWN_FRAME = re.compile(r"^\s*(?P<file>/\S+\.py):(?P<line>\d{1,9}) in (?P<function>\S+)")
#: A file that could not be compiled is the only frame that its error names.
_SYNTAX_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d{1,9})$')
#: A further line of an error's message: neither a stack of C++ nor a line of a log.
_MORE = re.compile(
    r"(?!Exception raised from |\s+\+-|frame #|Traceback |\[|\s*$|\w+ \d|\d|\S+:\d+:\d+ "
    r"|During handling|The above exception)"
)
_LONGEST_MESSAGE = 12


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
    #: Number of the line behind it, among those of the text.
    until: int = 0


def printed_tracebacks(text: str) -> list[Traceback]:
    """All complete tracebacks in ``text``, in the order in which they were printed.

    As Python prints them, those of groups of exceptions and of syntax errors too, and as rich and
    loguru draw them.
    """
    lines = [_undrawn(_PREFIX.sub("", line)) for line in text.splitlines()]
    found: list[Traceback] = []
    chained = False
    i = 0
    while i < len(lines):
        syntax = _SYNTAX_FRAME.match(lines[i])
        if not syntax and not _HEAD_LINE.search(lines[i]):
            chained = chained or lines[i].strip() in _LED_TO
            i += 1
            continue
        frames = []
        if syntax is not None:
            frames.append(StackFrame("<module>", syntax["file"], int(syntax["line"])))
        i += 1
        while i < len(lines) and _is_within(lines[i]):
            match = _FRAME.match(lines[i]) or _DRAWN_FRAME.match(lines[i])
            if match:
                frames.append(StackFrame(match["function"], match["file"], int(match["line"])))
            i += 1
        match = _ERROR.match(lines[i]) if i < len(lines) else None
        if match is None or not frames or (syntax and not match["type"].endswith("Error")):
            continue
        above = found[-1] if chained and found else None
        led = () if above is None else (f"{above.type}: {above.message}", *above.because)
        message, i = _message(match["message"] or "", lines, i + 1)
        found.append(Traceback(match["type"], message, tuple(reversed(frames)), led, i))
        chained = False
    return found


def _undrawn(line: str) -> str:
    """A line without what is drawn around a traceback; one within rich's box is indented."""
    if line.startswith(("│", "╰")):
        return f"  {line.strip('│╰─╯ ')}"
    return _CAUGHT.sub("  ", _BARS.sub("", line))


def _is_within(line: str) -> bool:
    return line.startswith("  ") or not line.strip()


def _message(first: str, lines: Sequence[str], after: int) -> tuple[str, int]:
    """The message with its further lines, as those of NCCL's errors, and the place behind them."""
    until = after
    while until < len(lines) and until - after < _LONGEST_MESSAGE and _MORE.match(lines[until]):
        until += 1
    return "\n".join([first, *lines[after:until]]), until


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
