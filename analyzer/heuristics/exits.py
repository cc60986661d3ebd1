"""Ranks that ended or raised: the first of them by its reason, the others as its victims.

On gloo the end of one process is an error in all that talk to it, within
milliseconds.  Such errors name no culprit: they are what a victim sees.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.evidence.model import RankView
from hanglab.analyzer.evidence.tracebacks import fatal_error, printed_tracebacks
from hanglab.analyzer.heuristics.loader_waits import queue_words
from hanglab.analyzer.heuristics.loops import label_left_loop
from hanglab.analyzer.heuristics.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.heuristics.swallowed import swallowed
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.recorder.case.records import Frame

#: What a rank raises because a peer is gone, late or different: no reason of its own.
_CONSEQUENCE = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe"
    r"|Timed out waiting|Application timeout|wait timeout|Wait timeout|Socket closed"
    r"|gloo[/\\]|preamble\.length|NCCL (?:communicator|error)|ncclRemoteError"
    r"|ncclSystemError|ncclInternalError|remote process exited|failed to recv|recvValue failed"
    r"|sendBytes failed|recvBytes failed|DistNetworkError|DistBackendError"
    r"|ended, so its group|watchdog|collective operation timeout|Pipe: "
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
#: Signals by which launchers end the ranks that are left.
_SENT = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
#: Ends are noted when somebody looks, in no order: of two within this time either may be first.
_BLUR_NS = 1_000_000_000
_JOINING = frozenset({"init_process_group", "rendezvous", "_create_c10d_store"})


@dataclass(frozen=True)
class Trouble:
    """Why one rank ended or raised."""

    view: RankView
    cause: Cause
    detail: str
    frame: Frame | None
    at_ns: int | None
    #: True where the trouble is only what another rank's end or difference does to this one.
    consequence: bool
    source: str = "exceptions"
    confidence: float = 0.97


def _from_text(
    view: RankView,
    type_: str,
    message: str,
    frames: list[Frame],
    at_ns: int | None,
    source: str,
    confidence: float = 0.97,
) -> Trouble:
    text = f"{type_}: {message}"
    frame = view.code.innermost_user(frames)
    detail = text.strip().splitlines()[0][:300]
    joining = any(f.function in _JOINING for f in frames)
    for cause, pattern in _BY_TEXT:
        if pattern.search(text):
            return Trouble(view, cause, detail, frame, at_ns, False, source, confidence)
    if joining and _RENDEZVOUS.search(text):
        return Trouble(view, Cause.RENDEZVOUS, detail, frame, at_ns, False, source, confidence)
    consequence = bool(_CONSEQUENCE.search(text))
    return Trouble(view, Cause.EXCEPTION, detail, frame, at_ns, consequence, source, confidence)


def _of_exit(view: RankView) -> Trouble | None:
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
    return Trouble(
        view, cause, detail, frame, end.at.wall_ns, aborted_by_backend, "exit", confidence=0.95
    )


def troubles_of(view: RankView) -> Trouble | None:
    """The rank's own earliest trouble, or None."""
    if view.exceptions:
        raised = min(view.exceptions, key=lambda e: e.at.wall_ns)
        known = raised.type not in ("KeyboardInterrupt", "SystemExit")
        if known:
            return _from_text(
                view,
                raised.type,
                raised.message,
                list(raised.frames),
                raised.at.wall_ns,
                "exceptions",
            )
    if view.failed:
        printed = printed_tracebacks(view.stderr)
        if printed:
            last = printed[-1]
            end = view.ended
            return _from_text(
                view,
                last.type,
                last.message,
                list(last.frames),
                end.at.wall_ns if end else None,
                "stderr",
            )
    return _of_exit(view)


def _swallowed(known: Known, view: RankView) -> Trouble | None:
    """An exception that the rank printed and survived, if it is why its peers wait."""
    one = swallowed(known, view)
    if one is None:
        return None
    trouble = _from_text(
        view, one.type, one.message, list(one.frames), one.at_ns, "handled", one.confidence
    )
    return None if trouble.consequence else trouble


def _cleared_away(troubles: list[Trouble]) -> list[Trouble]:
    """Ranks that a signal ended after another rank had failed by itself, or had been killed.

    That is what a launcher does to those that are left: it asks first and kills later.
    """
    cleared: list[Trouble] = []
    for sent, blur_ns in ((frozenset({signal.SIGKILL}) | _SENT, 0), (_SENT, _BLUR_NS)):
        first = min(
            (t.at_ns for t in troubles if t.at_ns is not None and not _ended_by(t, sent)),
            default=None,
        )
        if first is not None:
            cleared += [
                t for t in troubles if _ended_by(t, sent) and (t.at_ns or 0) >= first - blur_ns
            ]
    return cleared


def _ended_by(trouble: Trouble, sent: frozenset[signal.Signals]) -> bool:
    end = trouble.view.ended
    return trouble.source == "exit" and end is not None and end.signal in sent


_SAID = {
    Cause.EXCEPTION: "raised an exception",
    Cause.CRASH: "crashed",
    Cause.LOADER_WORKER_DIED: "lost a data loader worker",
    Cause.SHM_EXHAUSTED: "ran out of shared memory",
    Cause.DISK_FULL: "ran out of disk space",
    Cause.FD_EXHAUSTED: "ran out of file descriptors",
    Cause.PIDS_EXHAUSTED: "could not start another process or thread",
    Cause.GPU_OOM: "ran out of GPU memory",
    Cause.RENDEZVOUS: "could not join the job",
    Cause.TEARDOWN: "came to grief at its end",
}


def ends_and_exceptions(known: Known) -> Iterator[Proposal]:
    """One proposal per cause; victims' own errors are counted, not accused."""
    own: dict[Cause, list[Trouble]] = {}
    everybody = [troubles_of(view) or _swallowed(known, view) for view in known.ranks.values()]
    found = [trouble for trouble in everybody if trouble is not None]
    cleared = _cleared_away([trouble for trouble in found if not trouble.consequence])
    felt = [trouble for trouble in found if trouble.consequence or trouble in cleared]
    for trouble in found:
        if trouble not in felt:
            own.setdefault(trouble.cause, []).append(trouble)
    consequences = [trouble.view.rank for trouble in felt]
    for cause, troubles in own.items():
        troubles.sort(key=lambda t: (t.at_ns is None, t.at_ns, t.view.rank))
        ranks = [t.view.rank for t in troubles]
        first = troubles[0]
        location = first.view.location(first.frame) if first.frame else None
        evidence = [
            Evidence(
                t.source,
                t.view.rank,
                t.detail + name_line(t.view.location(t.frame) if t.frame else None),
            )
            for t in troubles
        ]
        if cause is Cause.LOADER_WORKER_DIED:
            evidence += [
                Evidence("progress", t.view.rank, f"its loader{words}")
                for t in troubles
                if (words := queue_words(t.view))
            ]
        if consequences:
            evidence.append(
                Evidence(
                    "exceptions",
                    None,
                    f"{name_ranks(consequences)} lost the connection, timed out or were ended: "
                    "a consequence",
                )
            )
        yield propose(
            known,
            Order.EXIT,
            cause,
            ranks,
            status=Status.HUNG if known.stuck else Status.FAILED,
            confidence=max(t.confidence for t in troubles),
            summary=f"{name_ranks(ranks).capitalize()} {_SAID[cause]}: {first.detail}"
            f"{name_line(location)}; its peers "
            f"{'wait for it' if known.stuck else 'failed because it was gone'}.",
            evidence=evidence,
            location=location,
            excludes=consequences,
        )


def _one_too_many(known: Known, culprits: list[int], finished: list[int]) -> Proposal:
    """Most ranks came to their end together; the few left over issued operations of their own."""
    first = known.ranks[culprits[0]]
    location = first.location(first.user_frames[0]) if first.user_frames else None
    return propose(
        known,
        Order.EXIT,
        Cause.COLLECTIVE_MISMATCH,
        culprits,
        status=Status.HUNG if known.stuck else Status.FAILED,
        confidence=0.85,
        summary=f"{name_ranks(culprits).capitalize()} issued more operations than "
        f"{name_ranks(finished)}, which had come to the end of the program.",
        evidence=[
            Evidence("flight_recorder", rank, "entered more operations than most of its peers")
            for rank in culprits
        ],
        location=location,
    )


def early_finish(known: Known) -> Iterator[Proposal]:
    """A rank that ended well while its peers still had operations to do with it."""
    ended = {r: v for r, v in known.ranks.items() if v.ended is not None}
    failed = [r for r, v in ended.items() if v.failed]
    if any(
        (trouble := troubles_of(v)) is not None and not trouble.consequence
        for v in known.ranks.values()
    ):
        return
    suffering = failed or (known.others(*ended) if known.stuck else [])
    if not suffering:
        return
    early = [r for r, v in ended.items() if not v.failed and known.fell_short(r) > 0]
    if not early:
        return
    if len(early) > len(suffering):
        yield _one_too_many(known, sorted(suffering), early)
        return
    cause, confidence, detail, alternatives = label_left_loop(known, early[0])
    yield propose(
        known,
        Order.EXIT,
        cause,
        early,
        status=Status.HUNG if known.stuck else Status.FAILED,
        confidence=confidence,
        summary=f"{name_ranks(early).capitalize()} came to the end of the program after fewer "
        "operations than its peers, which still needed it.",
        evidence=[
            Evidence("exit", r, "exited with code 0 before its peers" + detail) for r in early
        ],
        excludes=failed,
        alternatives=alternatives,
    )
