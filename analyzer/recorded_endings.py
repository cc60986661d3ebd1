"""Ends of ranks that are no call, as their exits, exceptions, states and stacks tell.

And what they did before they stopped that is no call either, where that is why.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from hanglab.analyzer.causes.network.store_lost import lost_store
from hanglab.analyzer.causes.resource.disk_full import failed_on_full_disk, met_full_disk
from hanglab.analyzer.facts.absent_ranks import computes
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.host_waits import host_waits
from hanglab.analyzer.facts.interpreter_lock import gil_holder
from hanglab.analyzer.facts.loops import left_loops
from hanglab.analyzer.facts.python_waits import fork_deadlock, python_wait
from hanglab.analyzer.facts.stack_position import StackPlace, main_thread
from hanglab.analyzer.facts.store_waits import KeyUse, awaited_key, earlier_keys
from hanglab.analyzer.facts.swallowed_exceptions import swallowed_exception


class EndingKind(str, Enum):
    """The end of a rank after its last call, or while it was in one."""

    EXITS = "exits"
    KILLED = "killed"
    RAISES = "raises"
    STOPPED = "stopped"
    HOLDS_GIL = "holds_gil"
    SPINS = "spins"
    WAITS_FOR_LOCK = "waits_for_lock"
    WAITS_FOR_LOADER = "waits_for_loader"
    LEFT_LOOP = "left_loop"
    WAITS_AT_EXIT = "waits_at_exit"
    WAITS_FOR_FILE_LOCK = "waits_for_file_lock"
    FILLS_DISK = "fills_disk"
    WAITS_FOR_FULL_DISK = "waits_for_full_disk"
    FORKS_WITH_LOCK = "forks_with_lock"
    #: One serves a store that others still need once it has left.
    KEEPS_STORE = "keeps_store"
    ASKS_STORE = "asks_store"
    WAITS_FOR_KEY = "waits_for_key"
    POLLS_FOR_KEY = "polls_for_key"
    #: These are no ends: what follows them is.
    SETS_KEY = "sets_key"
    HOLDS_FILE_LOCK = "holds_file_lock"
    HANDLES = "handles"


#: Kinds that may come over a rank within a call.
WITHIN_CALLS = frozenset(
    {
        EndingKind.EXITS,
        EndingKind.KILLED,
        EndingKind.RAISES,
        EndingKind.STOPPED,
        EndingKind.HOLDS_GIL,
    }
)
#: Source of evidence on locks of files.
_FILE_LOCKS = "file_locks"
#: Functions in which an interpreter that ends waits for threads.
_AT_EXIT = frozenset({"_shutdown", "_python_exit"})
_OF_KEYS = {
    EndingKind.SETS_KEY: "set",
    EndingKind.WAITS_FOR_KEY: "waited for",
    EndingKind.POLLS_FOR_KEY: "asked again and again for",
}
_WORDS = {
    EndingKind.STOPPED: "its process was stopped (state T)",
    EndingKind.HOLDS_GIL: "a thread of it held the interpreter's lock in C",
    EndingKind.SPINS: "it used a full core in Python code and got no further",
    EndingKind.WAITS_FOR_LOCK: "it waited for a lock of its own",
    EndingKind.WAITS_FOR_LOADER: "it waited for its data loader",
    EndingKind.LEFT_LOOP: "it stood behind the loop that its peers were in",
    EndingKind.WAITS_AT_EXIT: "its interpreter waited for a thread at its end",
    EndingKind.FILLS_DISK: "it wrote to a disk that was full",
    EndingKind.WAITS_FOR_FULL_DISK: "it waited for a thread of its own that had met a full disk",
    EndingKind.FORKS_WITH_LOCK: "it waited for a child that it had forked while a lock was held",
    EndingKind.KEEPS_STORE: "it kept a store that its peers still needed, and left",
    EndingKind.ASKS_STORE: "it asked for what was in a store that was gone",
    EndingKind.WAITS_FOR_FILE_LOCK: "it waited for the lock of a file that a peer held",
    EndingKind.HOLDS_FILE_LOCK: "it held the lock of a file that peers waited for",
}


@dataclass(frozen=True)
class RecordedEnding:
    """One rank's end."""

    kind: EndingKind
    #: Exit code, or number of the signal.
    number: int = 0
    #: Call that it left by (``os._exit``), or type of the exception.
    how: str = ""
    #: Message of the exception, or key of a store.
    text: str = ""
    #: Operations that the rank has begun since, of what is no end; None: the one in which it
    #: stopped.
    operations_after: int | None = None

    @property
    def words(self) -> str:
        """The evidence of it, as half a sentence."""
        if self.kind is EndingKind.EXITS:
            return f"it left with code {self.number}" + (f" by {self.how}" if self.how else "")
        if self.kind is EndingKind.KILLED:
            known = self.number in set(signal.Signals)
            name = signal.Signals(self.number).name if known else str(self.number)
            return f"it was ended by {name}"
        if self.kind is EndingKind.RAISES:
            return f"it ended with {self.how}"
        if self.kind is EndingKind.HANDLES:
            return f"it printed {self.how} and went on"
        if self.kind in _OF_KEYS:
            return f"it {_OF_KEYS[self.kind]} the store's key {self.text!r}"
        return _WORDS[self.kind]


def words_of(done: Sequence[RecordedEnding]) -> str:
    """The evidence of all that a rank did besides, keys that it used in one way together."""
    told = []
    for kind, group in groupby(done, lambda one: one.kind):
        alike = list(group)
        keys = ", ".join(repr(one.text) for one in alike)
        more = kind in _OF_KEYS and len(alike) > 1
        told.append(f"it {_OF_KEYS[kind]} the store's keys {keys}" if more else alike[0].words)
    return ", ".join(told)


def recorded_endings(facts: CaseFacts) -> dict[int, RecordedEnding]:
    """Ends by rank, of those that did not only wait in a call; none from a bare folder of dumps.

    Whose end followed from that of another is left to do so again.
    """
    locks = {rank for rank, wait in host_waits(facts).items() if wait.source == _FILE_LOCKS}
    found = _store_lost(facts)
    followed = {one.view.rank for one in failures(facts) if one.consequence}
    for rank, view in facts.ranks.items():
        if rank in followed or rank in found:
            continue
        ending = _of_ended(view) if view.ended is not None else _of_living(facts, view, locks)
        if ending is not None:
            found[rank] = ending
    return found


def recorded_before_stop(facts: CaseFacts) -> dict[int, tuple[RecordedEnding, ...]]:
    """Deeds of ranks before the call in which they stopped that are why peers wait, in order."""
    if not facts.stuck:
        return {}
    found = {
        rank: tuple(_of_key(use) for use in uses) for rank, uses in earlier_keys(facts).items()
    }
    for rank, view in facts.ranks.items():
        handled = swallowed_exception(facts, view) if view.ended is None else None
        if handled is not None:
            done = RecordedEnding(EndingKind.HANDLES, how=handled.type, text=handled.message)
            found[rank] = (*found.get(rank, ()), done)
    for wait in host_waits(facts).values():
        if wait.source == _FILE_LOCKS:
            found |= {holder: (RecordedEnding(EndingKind.HOLDS_FILE_LOCK),) for holder in wait.on}
    return found


def _of_key(use: KeyUse) -> RecordedEnding:
    kind = EndingKind.POLLS_FOR_KEY if use.polls else EndingKind.WAITS_FOR_KEY
    return RecordedEnding(
        EndingKind.SETS_KEY if use.sets else kind,
        text=use.key,
        operations_after=use.operations_after,
    )


def _store_lost(facts: CaseFacts) -> dict[int, RecordedEnding]:
    """Ends of a rank that served a store, and of those that lost it by that."""
    keeper = lost_store(facts)
    if keeper is None:
        return {}
    clients = [failure.view.rank for failure in keeper.lost]
    asks = {rank: RecordedEnding(EndingKind.ASKS_STORE) for rank in clients}
    return {**asks, keeper.view.rank: RecordedEnding(EndingKind.KEEPS_STORE, len(clients))}


def _of_ended(view: RankView) -> RecordedEnding | None:
    end = view.ended
    assert end is not None
    if end.signal is not None:
        return RecordedEnding(EndingKind.KILLED, end.signal)
    raised = next((one for one in view.exceptions if one.main), None)
    if raised is not None and end.code and failed_on_full_disk(raised):
        return RecordedEnding(EndingKind.FILLS_DISK)
    if raised is not None and end.code:
        return RecordedEnding(EndingKind.RAISES, end.code, raised.type, raised.message)
    if end.code is None:
        return None
    last = view.program_ends[-1] if view.program_ends else None
    return RecordedEnding(EndingKind.EXITS, end.code, last.how if last is not None else "")


def _of_living(facts: CaseFacts, view: RankView, locks: Collection[int]) -> RecordedEnding | None:
    """``locks``: ranks that wait for the lock of a file."""
    if not facts.stuck:
        return None
    if view.always_in_state("T"):
        return RecordedEnding(EndingKind.STOPPED)
    if gil_holder(facts, view) is not None:
        return RecordedEnding(EndingKind.HOLDS_GIL)
    if not facts.in_no_operation(view.rank):
        return None
    if view.position.place is StackPlace.TEARDOWN:
        at_exit = view.position.inside in _AT_EXIT
        return RecordedEnding(EndingKind.WAITS_AT_EXIT) if at_exit else None
    if view.rank in locks:
        return RecordedEnding(EndingKind.WAITS_FOR_FILE_LOCK)
    if facts.blocked(view.rank) is not None:
        # Its host waits for its device, or for a thread of its own that calls.
        return None
    if left_loops(facts, view.rank) and facts.operations_behind(view.rank):
        return RecordedEnding(EndingKind.LEFT_LOOP)
    key = awaited_key(view)
    if key is not None:
        return _of_key(key)
    if met_full_disk(facts, view):
        return RecordedEnding(EndingKind.WAITS_FOR_FULL_DISK)
    if view.position.place is StackPlace.LOADER:
        return RecordedEnding(EndingKind.WAITS_FOR_LOADER)
    if fork_deadlock(view):
        return RecordedEnding(EndingKind.FORKS_WITH_LOCK)
    if python_wait(view) is not None:
        return RecordedEnding(EndingKind.WAITS_FOR_LOCK)
    mains = [thread for one in view.rank_stacks if (thread := main_thread(one)) is not None]
    if computes(view) and 2 * sum(thread.owns_gil for thread in mains) > len(mains):
        return RecordedEnding(EndingKind.SPINS)
    return None


__all__ = [
    "WITHIN_CALLS",
    "EndingKind",
    "RecordedEnding",
    "recorded_before_stop",
    "recorded_endings",
    "words_of",
]
