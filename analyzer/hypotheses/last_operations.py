"""The end of a job's Program: what the ranks that matter did since all were last together.

Rings are long and may have dropped their beginning, so the Program begins where
the first of these ranks still has something unfinished, and what it leaves is
compared with the dumps relative to that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Bool,
    Entries,
    Int32,
    RankDump,
    State,
)
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.hypotheses.thresholds import SIMULATED_OPERATIONS
from hanglab.analyzer.matching.calls import ProcessGroup
from hanglab.analyzer.matching.completion import completed
from hanglab.analyzer.matching.signatures import comparable_dtypes, comparable_sizes
from hanglab.analyzer.program.program import UNKNOWN, Action, Program, ProgramGroup
from hanglab.analyzer.program.simulation import Backend
from hanglab.recorder.case.operations import op_of


class NoProgram(Exception):
    """The dumps give no Program that could be simulated; the message says why."""


@dataclass(frozen=True)
class Step:
    """One action of a rank, and what its dump says of it."""

    action: Action
    #: The sequence number in the dump; None for a send or receive.
    number: int | None
    finished: bool


@dataclass(frozen=True)
class LastOperations:
    """``steps[i]`` is what rank ``ranks[i]`` did; ``groups`` have places in ``ranks`` as members.

    Two places after the last rank stand for all others: for those who wait for the same
    culprits, or of whom nothing is known, and for those who do not and yet have not come.
    """

    ranks: tuple[int, ...]
    groups: tuple[ProgramGroup, ...]
    #: Group of the wait-for graph -> index into ``groups``, by name and members.
    places: Mapping[ProcessGroup, int]
    steps: tuple[tuple[Step, ...], ...]
    backend: Backend

    @property
    def excused(self) -> int:
        return len(self.ranks)

    @property
    def absent(self) -> int:
        return len(self.ranks) + 1

    @property
    def program(self) -> Program:
        actions = tuple(tuple(step.action for step in mine) for mine in self.steps)
        return Program(self.groups, (*actions, (), ()))

    @property
    def on_independent_streams(self) -> LastOperations:
        """A copy in which no operation of a device waits for one of another group."""
        return replace(
            self,
            steps=tuple(
                tuple(replace(step, action=replace(step.action, overlap=True)) for step in mine)
                for mine in self.steps
            ),
        )

    def with_steps(self, rank: int, steps: list[Step]) -> LastOperations:
        """A copy with other steps of the rank at place ``rank``."""
        changed = list(self.steps)
        changed[rank] = tuple(steps)
        return replace(self, steps=tuple(changed))


def last_operations(
    graph: WaitForGraph,
    ranks: Collection[int],
    waiters: Collection[int],
    since: Mapping[ProcessGroup, int],
) -> LastOperations:
    """Last operations of ``ranks``; ``waiters`` wait for the culprits.  Raises NoProgram.

    ``since``: numbers that are wanted of groups, even where everybody finished them.
    """
    lookup = graph.lookup
    if lookup is None:
        raise NoProgram("the dumps are not at hand")
    lookup.prefetch(ranks)
    dumps = {rank: dump for rank in ranks if (dump := lookup.dump(rank)) is not None}
    lost = [rank for rank in ranks if rank not in dumps or dumps[rank].entries is None]
    if lost:
        raise NoProgram(f"rank {lost[0]} left no entries")
    backends = {op.backend for d in dumps.values() if d.entries for op in d.entries.operations}
    if len(backends) != 1:
        raise NoProgram("several backends take part")
    backend: Backend = "gloo" if backends == {"gloo"} else "nccl"
    reader = _Reader(graph, dumps, set(waiters), backend)
    return reader.read(since)


class _Reader:
    def __init__(
        self,
        graph: WaitForGraph,
        dumps: Mapping[int, RankDump],
        waiters: set[int],
        backend: Backend,
    ) -> None:
        self._graph = graph
        self._dumps = dumps
        self._ranks = tuple(dumps)
        self._place = {rank: place for place, rank in enumerate(self._ranks)}
        self._waiters = waiters
        # Whoever was dumped on its way may have come since.
        self._known_ranks = frozenset(graph.ranks) - frozenset(graph.progressing)
        self._backend = backend
        self._done = {rank: self._completed(rank) for rank in dumps}
        self._groups: dict[ProcessGroup, int] = {}
        #: By index of the group, as places in the Program.
        self._members: list[tuple[int, ...]] = []
        #: (rank, name) -> index of the group
        self._named: dict[tuple[int, str], int] = {}
        self._known: list[ProcessGroup] = []
        awaited = self._awaited_besides()
        for group in graph.groups:
            mine = [rank for rank in group.members if rank in self._place]
            if not mine:
                continue
            number = self._groups[group] = len(self._known)
            self._known.append(group)
            for rank in mine:
                if (rank, group.name) in self._named:
                    raise NoProgram(f"several groups are called {group.name}")
                self._named[rank, group.name] = number
            self._members.append(self._members_of(mine, awaited.get(group, set())))

    def _completed(self, rank: int) -> Bool:
        """Entries that have finished, and those that alone would have."""
        done = completed(self._dumps[rank])
        done[list(self._graph.exchanged.get(rank, ()))] = True
        return done

    def _awaited_besides(self) -> dict[ProcessGroup, set[int]]:
        """Ranks that are not simulated and for which those that are wait, by group."""
        found: dict[ProcessGroup, set[int]] = {}
        for wait in self._graph.waits:
            if wait.call.rank in self._place:
                others = (rank for rank in wait.on if rank not in self._place)
                found.setdefault(wait.call.group, set()).update(others)
        return found

    def _members_of(self, mine: list[int], others: set[int]) -> tuple[int, ...]:
        """Places of the ranks that are simulated, and of who stands for those awaited besides."""
        places = [self._place[rank] for rank in mine]
        known = self._known_ranks
        if any(rank in self._waiters or rank not in known for rank in others):
            places.append(len(self._ranks))
        if any(rank not in self._waiters and rank in known for rank in others):
            places.append(len(self._ranks) + 1)
        return tuple(places)

    def read(self, since: Mapping[ProcessGroup, int]) -> LastOperations:
        """Raises NoProgram."""
        first = {
            self._groups[group]: number for group, number in since.items() if group in self._groups
        }
        columns = {rank: self._columns_of(rank) for rank in self._ranks}
        for rank, (entries, groups, collective) in columns.items():
            for number in set(groups[collective].tolist()):
                mine = collective & (groups == number)
                seqs = entries.seq[mine]
                left = entries.seq[mine & ~self._done[rank]]
                begin = int(left.min()) if len(left) else int(seqs.max()) + 1
                first[number] = min(first.get(number, begin), begin)
        steps = tuple(tuple(self._steps(rank, *columns[rank], first)) for rank in self._ranks)
        groups_of = tuple(
            ProgramGroup(group.name, members, group.description)
            for group, members in zip(self._known, self._members, strict=True)
        )
        return LastOperations(self._ranks, groups_of, self._groups, steps, self._backend)

    def _columns_of(self, rank: int) -> tuple[Entries, Int32, Bool]:
        """The rank's entries, the group of each (ABSENT if it is none), which are collectives."""
        entries = self._dumps[rank].entries
        assert entries is not None
        numbers = [self._named.get((rank, g.name), ABSENT) for g in entries.group_names]
        groups = np.array([*numbers, ABSENT], dtype=np.int32)[entries.group]
        skipped = [op_of(o.op).batch_end or op_of(o.op).p2p for o in entries.operations]
        plain = ~np.array([*skipped, True], dtype=np.bool_)[entries.operation]
        return entries, groups, plain & ~entries.is_p2p & (entries.seq >= 0) & (groups >= 0)

    def _steps(
        self,
        rank: int,
        entries: Entries,
        groups: Int32,
        collective: Bool,
        first: Mapping[int, int],
    ) -> Iterator[Step]:
        done = self._done[rank]
        begins = np.array([first.get(n, 0) for n in range(len(self._known))] + [0])[groups]
        p2p = np.array([op_of(o.op).p2p for o in entries.operations] + [False])[entries.operation]
        rows = np.flatnonzero((collective & (entries.seq >= begins)) | (p2p & ~done)).tolist()
        if len(rows) > SIMULATED_OPERATIONS:
            raise NoProgram(f"rank {rank} made {len(rows)} operations since")
        batches = Counter(
            (int(groups[row]), int(entries.p2p_seq[row]))
            for row in rows
            if p2p[row] and entries.p2p_seq[row] > 0
        )
        names = {batch: number for number, batch in enumerate(sorted(batches), start=1)}
        following = {number: first[number] for number in first}
        for row in rows:
            number, seq = int(groups[row]), int(entries.seq[row])
            batch = (number, int(entries.p2p_seq[row])) if p2p[row] else None
            if batch is None:
                if seq < following[number]:
                    continue  # coalesced operations share their number
                if seq > following[number]:
                    raise NoProgram(
                        f"the buffer of rank {rank} has dropped number {following[number]} of "
                        f"group {self._known[number].name}"
                    )
                following[number] += 1
            yield Step(
                Action(
                    **self._arguments(rank, entries, row, number),
                    group=number,
                    overlap=bool(done[row]) or self._went_on(rank, entries, row),
                    batch=names[batch] if batch is not None and batches[batch] > 1 else 0,
                ),
                None if p2p[row] else seq,
                bool(done[row]),
            )

    def _arguments(self, rank: int, entries: Entries, row: int, number: int) -> dict[str, Any]:
        operation, given = entries.operation_at(row), entries.arguments_at(row)
        sizes, dtypes = comparable_sizes(operation.op, given), comparable_dtypes(given)
        members = self._members[number]
        peer: int | None = None
        if operation.spec.p2p:
            everybody = self._known[number].members
            if operation.peer >= len(everybody):
                raise NoProgram(f"rank {rank} names a peer that is no member")
            if operation.peer >= 0:
                peer = self._peer(everybody[operation.peer], members)
        return {
            "op": operation.op,
            # What is compared is whether they are equal; no hash is -1.
            "numel": hash(sizes) if sizes is not None else UNKNOWN,
            "dtype": ", ".join(dtypes or ()),
            "root": given.root,
            "peer": peer,
        }

    def _peer(self, peer: int, members: tuple[int, ...]) -> int:
        """Place of the peer among the members; one beyond them where it is not simulated."""
        if peer in self._place:
            return members.index(self._place[peer])
        excused = peer in self._waiters or peer not in self._known_ranks
        return len(members) + (not excused)

    def _went_on(self, rank: int, entries: Entries, row: int) -> bool:
        """True if the rank provably did not wait for an operation before it issued the next."""
        if row in self._dumps[rank].posted:
            return True
        later = slice(row + 1, None)
        if self._backend == "gloo":
            batch = (entries.p2p_seq[later] == entries.p2p_seq[row]) & (entries.p2p_seq[row] > 0)
            return bool((~batch).any())
        begun = entries.state[later] >= State.STARTED
        return bool((begun & (entries.group[later] != entries.group[row])).any())
