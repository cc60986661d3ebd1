"""Waits of hosts besides operations: for a lock, pipe, socket, key or file that is a peer's.

The edges of the wait-for graph that dumps do not show: from a rank's main thread to the rank
that alone can end its wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.links import latest
from hanglab.analyzer.facts.polls import is_older_than_job, poll_frequency, poll_words, polls
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.facts.store_waits import store_wait
from hanglab.analyzer.facts.thresholds import NAMED_PROCESSES
from hanglab.analyzer.verdict import Evidence
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import DescriptorWait


@dataclass(frozen=True)
class HostWait:
    """``on`` are the ranks any of which can end it; empty where nobody knows who can.

    ``proved``: whoever it is for holds what the rank wants, or had its time to bring it.
    """

    rank: int
    on: tuple[int, ...]
    source: str
    #: What it waits for, without the rank.
    words: str
    proved: bool = False
    #: Whoever it is for has let its turn to bring it pass.
    left_out: bool = False
    #: How often it asked, of one that polls.
    frequency: str = ""

    @property
    def evidence(self) -> Evidence:
        often = f" ({self.frequency})" if self.frequency else ""
        return Evidence(self.source, self.rank, self.words + often)


def host_waits(facts: CaseFacts) -> dict[int, HostWait]:
    """By rank: those whose own process waits, and not one below it, for what is a peer's."""
    found = {}
    for rank, view in facts.ranks.items():
        if view.ended is None:
            wait = (
                _for_lock(facts, view)
                or _for_shared_lock(facts, view)
                or _for_key(facts, view)
                or _for_answer(facts, view)
                or _for_descriptor(facts, view)
            )
            if wait is not None:
                found[rank] = wait
    return found


def final_holder(waits: dict[int, HostWait], rank: int) -> int:
    """Rank at the end of a chain of waits; where the chain is a ring, one of the ring."""
    seen: set[int] = set()
    while rank in waits and len(waits[rank].on) == 1 and rank not in seen:
        seen.add(rank)
        (rank,) = waits[rank].on
    return rank


def wait_evidence(waits: dict[int, HostWait], ranks: Iterable[int]) -> list[Evidence]:
    """A line for each of the ranks."""
    return [waits[rank].evidence for rank in ranks]


def _for_lock(facts: CaseFacts, view: RankView) -> HostWait | None:
    for wait in view.read(files.FILE_LOCKS):
        if wait.pid == view.pid and wait.holder_rank != view.rank:
            words = (
                f"waits for the lock ({wait.kind}) of {wait.file}, "
                f"which {_name_holder(facts, wait.holder_rank, wait.holder)} holds"
            )
            return HostWait(view.rank, (wait.holder_rank,), "file_locks", words, proved=True)
    return None


def _name_holder(facts: CaseFacts, rank: int, pid: int) -> str:
    """The rank, or the process below it to which it handed what it had open."""
    holder = facts.ranks.get(rank)
    if holder is None or holder.pid == pid:
        return f"rank {rank} (pid {pid})"
    names = {one.name for one in holder.processes if one.pid == pid and one.name}
    return f"{names.pop() if len(names) == 1 else 'a process'} (pid {pid}) below rank {rank}"


def _for_shared_lock(facts: CaseFacts, view: RankView) -> HostWait | None:
    """The wait for a lock of several processes; of all ranks for one it is a deadlock by itself."""
    lock = _shared_lock(view)
    if not lock or all(_shared_lock(other) == lock for other in facts.ranks.values()):
        return None
    words = f"waits for a lock that processes share (device and inode {lock}); which holds it is "
    return HostWait(view.rank, (), "waits", f"{words}not known")


def _shared_lock(view: RankView) -> str:
    """Device and inode of the lock of several processes that the main thread waits for; or ""."""
    return next((wait.shared for wait in view.waits if wait.main and wait.forever), "")


def _for_key(facts: CaseFacts, view: RankView) -> HostWait | None:
    wait = store_wait(facts, view)
    if wait is None or wait.of_nobody:
        return None
    if wait.joins and view.position.place is StackPlace.RENDEZVOUS:
        # Whether the job ever forms is told of all ranks together.
        return None
    if wait.joins:
        words = f"waits for others at the store {wait.key}, which it makes or joins"
        return HostWait(view.rank, (), "store", words)
    verb = "polls" if wait.poll is not None else "waits"
    often = poll_frequency(wait.poll) if wait.poll is not None else ""
    if wait.setter is None:
        words = f"{verb} for the store's key {wait.key!r}, and no one rank is known to set it"
        return HostWait(view.rank, (), "store", words, frequency=often)
    words = f"{verb} for the store's key {wait.key!r}; rank {wait.setter} has set those before it"
    if wait.own_number:
        whose = "it" if wait.setter == view.rank else f"rank {wait.setter}"
        words = (
            f"{verb} for the store's key {wait.key!r}, which {whose} has not set; each other rank "
            "has set the one with its own number"
        )
    elif wait.instead:
        words += f", and set {wait.instead!r} when it was this one's turn"
    elif wait.left_out:
        words += ", and has gone on without this one"
    return HostWait(
        view.rank,
        (wait.setter,),
        "store",
        words,
        proved=wait.left_out,
        left_out=wait.left_out,
        frequency=often,
    )


def _for_answer(facts: CaseFacts, view: RankView) -> HostWait | None:
    """The wait of a rank that polls: for whom nobody knows; None if for nobody of the job."""
    asked = polls(view)
    if not asked or is_older_than_job(facts, asked[0]):
        return None
    words = poll_words(facts, asked[0])
    return HostWait(view.rank, (), "polls", words, frequency=poll_frequency(asked[0]))


def _for_descriptor(facts: CaseFacts, view: RankView) -> HostWait | None:
    """The wait for a peer's end of a pipe or socket; None if it is for nobody of the job."""
    rows = [row for row in view.read(files.DESCRIPTOR_WAITS) if row.pid == view.pid]
    ranks: set[int] = set()
    for row in rows:
        owners = _owners(facts, row)
        if view.rank in owners or None in owners:
            # A process below it, or one of no rank, can end the wait as well.
            return None
        ranks.update(owner for owner in owners if owner is not None)
    if not ranks:
        return None
    if any(end.serves_store for row in rows for end in row.others):
        # The keys that it waits for are not known: whoever serves the store only tells.
        words = "waits for an answer of the store, for a key that nobody knows"
        return HostWait(view.rank, (), "descriptors", words)
    words = " or ".join(_words(row) for row in rows[:NAMED_PROCESSES])
    return HostWait(
        view.rank, tuple(sorted(ranks)), "descriptors", f"{words}, whose other end "
        f"{name_ranks(sorted(ranks))} {'has' if len(ranks) == 1 else 'have'}",
    )  # fmt: skip


def _owners(facts: CaseFacts, row: DescriptorWait) -> set[int | None]:
    """Ranks of the processes at the other end, of this host or another; None for one of no rank."""
    if row.others:
        return {end.rank for end in row.others}
    return {
        rank
        for rank, view in facts.ranks.items()
        if row.remote and (sample := latest(view.connections)) is not None
        if any((c.local, c.remote) == (row.remote, row.local) for c in sample.connections)
    }


def _words(row: DescriptorWait) -> str:
    aim = "to write into" if row.sends else "for data from"
    what = f"the connection {row.local} to {row.remote}" if row.remote else f"a {row.kind}"
    if row.kind == "unix":
        what = "a unix socket"
    whom = " and ".join(f"{one.name} (pid {one.pid})" for one in row.others[:NAMED_PROCESSES])
    return f"waits {aim} {what}" + (f" of {whom}" if whom else "")
