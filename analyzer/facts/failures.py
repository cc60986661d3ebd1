"""Failures of single ranks: why one ended or raised, by what it raised, printed and ended with.

On gloo the end of one process is an error in all that talk to it, within
milliseconds.  Such errors name no culprit: they are what a victim sees.  So are
time limits that struck, which a peer's absence brought about.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.tracebacks import fatal_error, printed_tracebacks
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.records import StackFrame

#: What a rank raises because a peer is gone, late or different: no reason of its own.
_CONSEQUENCE = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe"
    r"|Timed out waiting|Application timeout|wait timeout|Wait timeout|Socket closed"
    r"|gloo[/\\]|preamble\.length|NCCL (?:communicator|error)|ncclRemoteError"
    r"|ncclSystemError|ncclInternalError|remote process exited|failed to recv|recvValue failed"
    r"|sendBytes failed|recvBytes failed|DistNetworkError|DistBackendError"
    r"|ended, so its group|watchdog|collective operation timeout|Pipe: |monitoredBarrier"
)
#: Of these: what it raises because a peer did not come in time, dead or alive.
_GAVE_UP = re.compile(
    r"Timed out waiting|Application timeout|[Ww]ait timeout|watchdog|collective operation timeout"
    r"|failed to pass monitoredBarrier|timed out in monitoredBarrier"
)
_BY_TEXT: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (
        Cause.SHM_EXHAUSTED,
        re.compile(
            r"insufficient shared memory|unable to (?:write to file|allocate shared memory)"
            r".*(?:/torch_|shm)|/dev/shm.*No space left|No space left.*/dev/shm"
        ),
    ),
    (
        Cause.LOADER_WORKER_DIED,
        re.compile(
            r"DataLoader worker \(pid(?:\(s\))? [^)]*\) "
            r"(?:is killed by signal|exited unexpectedly)"
        ),
    ),
    (Cause.GPU_OOM, re.compile(r"CUDA out of memory|HIP out of memory|OutOfMemoryError")),
    (Cause.DISK_FULL, re.compile(r"No space left on device|Disk quota exceeded|\[Errno 28\]")),
    (Cause.FD_EXHAUSTED, re.compile(r"Too many open files|\[Errno 24\]")),
    (
        Cause.PIDS_EXHAUSTED,
        re.compile(
            r"can't start new thread|Resource temporarily unavailable.*(?:fork|clone)"
            r"|BlockingIOError: \[Errno 11\]"
        ),
    ),
)
_RENDEZVOUS = re.compile(
    r"Address already in use|EADDRINUSE|waiting for clients|DistStoreError|rendezvous"
    r"|Rendezvous|could not resolve|Failed to resolve|The server socket has failed"
)
#: Signals that a process brings on itself.
_FATAL = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
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
    confidence: float = 0.97
    #: True where it lost its patience with a peer, which need not have ended for that.
    gave_up: bool = False
    #: True where somebody else ended it, after a peer's failure or together with its peers.
    collateral: bool = False


def from_text(
    view: RankView,
    type_: str,
    message: str,
    frames: list[StackFrame],
    at_ns: int | None,
    source: str,
    confidence: float = 0.97,
    because: Iterable[str] = (),
) -> Failure:
    text = f"{type_}: {message}"
    frame = view.code.innermost_user(frames)
    detail = text.strip().splitlines()[0][:300]
    joining = any(f.function in _JOINING for f in frames)
    for cause, pattern in _BY_TEXT:
        if pattern.search(text):
            return Failure(view, cause, detail, frame, at_ns, False, source, confidence)
    if joining and _RENDEZVOUS.search(text):
        return Failure(view, Cause.RENDEZVOUS, detail, frame, at_ns, False, source, confidence)
    # Whoever wraps such an error, or fails in its handling, fails of it all the same.
    said = "\n".join([text, *because])
    return Failure(
        view,
        Cause.EXCEPTION,
        detail,
        frame,
        at_ns,
        bool(_CONSEQUENCE.search(said)),
        source,
        confidence,
        gave_up=bool(_GAVE_UP.search(said)),
    )


def _exit_failure(view: RankView) -> Failure | None:
    """A rank that ended badly without any traceback."""
    end = view.ended
    if end is None or not (end.code or end.signal is not None):
        return None
    number = end.signal
    if number is None and end.code is not None and end.code > 128 and end.code - 128 < 65:
        number = end.code - 128
    said = view.stderr[-4000:]
    aborted_by_backend = number == signal.SIGABRT and bool(_CONSEQUENCE.search(said))
    if number is not None:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        detail = f"ended by {name}"
    else:
        detail = f"exited with code {end.code} and no traceback"
    cause, frame = Cause.CRASH, None
    if number in _FATAL and view.progress is not None and view.progress.phase == "exiting":
        cause, detail = Cause.TEARDOWN, f"{detail} past its script, while its interpreter ended"
    fatal = fatal_error(view.stderr) if number in _FATAL else None
    if fatal is not None:
        frame = view.code.innermost_user(list(fatal.frames))
        detail += f" ({fatal.message})"
    return Failure(
        view,
        cause,
        detail,
        frame,
        end.at.wall_ns,
        aborted_by_backend,
        "exit",
        confidence=0.95,
        gave_up=aborted_by_backend and bool(_GAVE_UP.search(said)),
    )


def failure_of(view: RankView) -> Failure | None:
    """The rank's own earliest failure, or None."""
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
            return from_text(
                view,
                last.type,
                last.message,
                list(last.frames),
                end.at.wall_ns if end else None,
                "stderr",
            )
    return _exit_failure(view)
