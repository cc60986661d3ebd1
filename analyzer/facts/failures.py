"""Failures of single ranks: why one ended or raised, by what it raised, printed and ended with.

On gloo the end of one process is an error in all that talk to it, within
milliseconds.  Such errors name no culprit: they are what a victim sees.  So are
time limits that struck, which a peer's absence brought about.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.error_texts import (
    JOIN_FAILED,
    MISSED_CLIENTS,
    RANKS_THAT_FAILED,
    REFUSED_SIZE,
    ErrorText,
    Kind,
    classify,
    gave_up,
    matching_line,
    names_backend,
)
from hanglab.analyzer.facts.printed_errors import PrintedError, sticky_error
from hanglab.analyzer.facts.program_ends import ending_call
from hanglab.analyzer.logs.tracebacks import (
    fatal_error,
    printed_tracebacks,
    tracebacks_of_ranks,
)
from hanglab.analyzer.strengths import CONCLUDED, PROVED, SEEN, SHOWN
from hanglab.analyzer.verdict import Cause
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case.records import StackFrame

#: Signals that a process brings on itself.
_FATAL = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
#: What C++ says of an exception that nobody caught, before it aborts the process.
_THROWN = re.compile(r"^\s*what\(\):\s*(\S.*)$", re.MULTILINE)
#: What torch raises anew in a rank, of a process or thread of its own (torch/_utils.py,
#: ExceptionWrapper): the traceback from there follows.
_PASSED_ON = re.compile(r"Caught \S+ in (?P<place>[^\n]+)\.\nOriginal Traceback")
_JOINING = frozenset({"init_process_group", "rendezvous", "_create_c10d_store"})


@dataclass(frozen=True)
class Failure:
    """The reason for which one rank ended or raised."""

    view: RankView
    cause: Cause
    detail: str
    frame: StackFrame | None
    at_ns: int | None
    #: True where it is only what another rank's end or difference does to this one.
    consequence: bool
    source: str = "exceptions"
    confidence: float = PROVED
    #: True where it lost its patience with a peer, which need not have ended for that.
    gave_up: bool = False
    #: True where somebody else ended it, after a peer's failure or together with its peers.
    collateral: bool = False
    #: True where it is of a kind that no process survives: a CUDA error, memory overwritten.
    sticky: bool = False
    #: True where a peer's difference brought it about, which no peer's end does.
    differs: bool = False
    #: True where what it lost, or waited for, need be no rank: neither the error nor its stack is
    #: of what ranks talk over.
    foreign: bool = False
    #: All that the error says, and those that led to it; "" where it is no exception.
    text: str = ""


def from_text(
    view: RankView,
    type_: str,
    message: str,
    frames: list[StackFrame],
    at_ns: int | None,
    source: str,
    confidence: float = PROVED,
    because: Iterable[str] = (),
) -> Failure:
    """The failure that an exception is; ``because`` are the errors that led to it."""
    # Some begin with an empty line: the first that says anything is the one to quote.
    text = f"{type_}: {message.lstrip()}"
    passed = _PASSED_ON.match(message)
    original = printed_tracebacks(message) if passed else []
    if passed and original:
        first = original[-1]
        failure = from_text(
            view,
            first.type,
            first.message,
            # Where no code of the program's is on that one's stack, the rank's own line tells.
            [*first.frames, *frames],
            at_ns,
            source,
            confidence,
            [*first.because, *because],
        )
        return replace(failure, detail=f"{failure.detail} (in {passed['place']})")
    listed = RANKS_THAT_FAILED.pattern.search(text)
    if listed:
        theirs = tracebacks_of_ranks("\n".join([text, view.stderr])).get(view.rank)
        if theirs is not None and str(view.rank) in listed[1].split(", "):
            return from_text(
                view, theirs.type, theirs.message, list(theirs.frames), at_ns, source, confidence
            )
        detail, frame = _first_line(text), view.code.innermost_user(frames)
        return Failure(view, Cause.EXCEPTION, detail, frame, at_ns, True, source, confidence)
    frame = view.code.innermost_user(frames)
    said = "\n".join([text, *because])
    row = _telling_row(text, said)
    if row is not None and row.kind is Kind.ROOT and not row.between_ranks:
        detail, cause = _quote(said, row), row.cause or Cause.EXCEPTION
        return Failure(
            view,
            cause,
            detail,
            frame,
            at_ns,
            False,
            source,
            confidence,
            sticky=row.sticky,
            text=said,
        )
    detail = _first_line(text)
    if because := [*because]:
        detail += f", from {_first_line(because[-1])}"
    joining = any(f.function in _JOINING for f in frames)
    if joining and JOIN_FAILED.pattern.search(text):
        # Who serves the meeting point misses others there.
        misses = MISSED_CLIENTS.search(text) is not None
        return Failure(
            view,
            Cause.RENDEZVOUS,
            detail,
            frame,
            at_ns,
            misses,
            source,
            confidence,
            gave_up=misses,
            text=said,
        )
    return Failure(
        view,
        Cause.EXCEPTION,
        detail,
        frame,
        at_ns,
        row is not None,
        source,
        confidence,
        gave_up=gave_up(said),
        foreign=row is not None and not (names_backend(said) or any(map(_is_distributed, frames))),
        text=said,
    )


def _is_distributed(frame: StackFrame) -> bool:
    return "torch/distributed/" in frame.file


def _telling_row(text: str, said: str) -> ErrorText | None:
    """The row of an error: a root that it names itself, or one that nobody survives.

    Whoever wraps a consequence, or fails in its handling, fails of it all the same.
    """
    return (
        classify(text, Kind.ROOT)
        or classify(said, Kind.ROOT, sticky=True)
        or classify(said, Kind.CONSEQUENCE)
        or classify(said, Kind.ROOT)
    )


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:300]


def _quote(text: str, row: ErrorText) -> str:
    """The error's first line, and that which tells where it is another."""
    first = _first_line(text)
    telling = matching_line(text.splitlines(), row.pattern)
    return first if not telling or row.pattern.search(first) else f"{first[:150]} {telling}"


def _exit_failure(view: RankView) -> Failure | None:
    """A rank that ended badly without any traceback, or that a thread of its ended."""
    end, call = view.ended, ending_call(view)
    if end is None or not (view.failed or (call is not None and call.thread)):
        return None
    number = end.signal
    if number is None and end.code is not None and end.code > 128 and end.code - 128 < 65:
        number = end.code - 128
    said = view.stderr[-4000:]
    aborted = number == signal.SIGABRT or end.vanished
    felt = aborted and classify(said, Kind.CONSEQUENCE) is not None
    if number is not None:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        detail = f"ended by {name}"
    elif end.vanished:
        detail = "ended in the midst of its work, and nobody told how"
    elif call is not None:
        detail = f"ended itself by {call.how}({call.code})"
        detail += f" in its thread {call.thread}" if call.thread else ""
    else:
        detail = f"exited with code {end.code} and no traceback"
    cause, frame = Cause.CRASH, None
    if number is None and call is not None:
        frame = call.frame
    if number in _FATAL and view.progress is not None and view.progress.phase == "exiting":
        cause, detail = Cause.TEARDOWN, f"{detail} past its script, while its interpreter ended"
    fatal = fatal_error(view.stderr) if number in _FATAL else None
    if fatal is not None:
        frame = view.code.innermost_user(list(fatal.frames))
        detail += f" ({fatal.message})"
    elif number == signal.SIGABRT and len(thrown := set(_THROWN.findall(said))) == 1:
        words = thrown.pop()
        detail += f" ({words[:300]})"
        row = classify(words, Kind.ROOT)
        if row is not None and row.cause is not None and not row.between_ranks:
            cause = row.cause
    return Failure(
        view,
        cause,
        detail,
        frame,
        end.at.wall_ns,
        felt,
        "exit",
        confidence=CONCLUDED if end.vanished else SHOWN,
        gave_up=felt and gave_up(said),
        differs=felt and REFUSED_SIZE.pattern.search(said) is not None,
    )


def _own_failure(view: RankView) -> Failure | None:
    """The rank's failure by its earliest exception, its last traceback or its exit."""
    if view.exceptions:
        raised = min(view.exceptions, key=lambda e: e.at.wall_ns)
        known = raised.type not in ("KeyboardInterrupt", "SystemExit")
        if known:
            return from_text(
                view,
                raised.type,
                raised.message,
                list(raised.frames),
                raised.at.wall_ns,
                "exceptions",
                because=raised.because,
            )
    if view.failed:
        printed = printed_tracebacks(view.stderr)
        if printed:
            last = printed[-1]
            end = view.ended
            if last.type == "KeyboardInterrupt":
                return _interrupted(view)
            return from_text(
                view,
                last.type,
                last.message,
                list(last.frames),
                end.at.wall_ns if end else None,
                "stderr",
                because=last.because,
            )
    return _exit_failure(view)


def _interrupted(view: RankView) -> Failure:
    """The end of a rank that somebody interrupted at a keyboard, or as a launcher does it."""
    at_ns = view.ended.at.wall_ns if view.ended is not None else None
    detail = "was interrupted (KeyboardInterrupt)"
    return Failure(view, Cause.CRASH, detail, None, at_ns, True, "stderr", collateral=True)


def failure_of(view: RankView) -> Failure | None:
    """The rank's own earliest failure, or None.

    What no process survives is why it failed wherever its log holds it, however it ended: the
    main thread may know no more than that communication was aborted.
    """
    failure = _own_failure(view)
    if failure is None or not (failure.consequence or failure.source == "exit"):
        return failure
    printed = _in_log(view, failure.at_ns)
    return failure if printed is None else _by_log(failure, printed)


def _in_log(view: RankView, ended_ns: int | None) -> PrintedError | None:
    """Text that no process survives in the rank's log, since it was started."""
    process = view.process
    since_ns = None
    if process is not None and process.attempt > 0:
        since_ns = process.started.wall_ns - view.clock_ahead_ns
    return sticky_error(view.stderr, ended_ns, since_ns)


def _by_log(failure: Failure, printed: PrintedError) -> Failure:
    """A failure whose reason the log tells; its place and its end stay."""
    return replace(
        failure,
        cause=printed.row.cause or failure.cause,
        detail=printed.line
        if failure.source != "exit"
        else f"{failure.detail}: {printed.line}"[:400],
        at_ns=printed.at_ns if printed.at_ns is not None else failure.at_ns,
        consequence=False,
        source="stderr",
        confidence=max(failure.confidence, PROVED),
        gave_up=False,
        sticky=True,
    )


def consequence_words(ranks: Sequence[int]) -> str:
    """Words for ranks that ended because others did."""
    were = "was" if len(ranks) == 1 else "were"
    return f"{name_ranks(ranks)} lost the connection, timed out or {were} ended: a consequence"


def printed_failure(view: RankView) -> Failure | None:
    """The failure of a rank that lives, by what no process survives in its log; None without."""
    printed = _in_log(view, None) if view.ended is None else None
    if printed is None:
        return None
    cause = printed.row.cause or Cause.EXCEPTION
    return Failure(
        view,
        cause,
        printed.line,
        view.position.user,
        None,
        False,
        "stderr",
        confidence=SEEN,
        sticky=True,
    )
