"""Runs a Program the way gloo or NCCL would, until it ends or nothing moves any more.

gloo blocks the host in every operation that does not overlap.  NCCL only
enqueues: the device runs a group's operations in order, behind what the
compute stream waits for, and the host blocks where it joins the device or runs
too far ahead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hanglab.analyzer.program.program import UNKNOWN, Action, Program

Backend = Literal["gloo", "nccl"]
#: What is sent to, and taken from, each member.
SplitLists = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass
class Issued:
    """An action that a rank's host has issued.  Numbers are as the backend would count."""

    action: Action
    #: collective_seq_id: of the operation, or for point-to-point of the last one before.
    seq: int
    p2p_seq: int
    op_id: int
    done: bool = False
    #: It runs on the rank's device (on gloo: it is entered).
    running: bool = False


@dataclass
class RankRun:
    issued: list[Issued] = field(default_factory=list)
    #: The host made all of its actions and waits for nothing.
    ended: bool = False


@dataclass
class Run:
    """State of each rank of a Program once nothing moves."""

    program: Program
    backend: Backend
    ranks: list[RankRun]

    @property
    def stuck(self) -> bool:
        return not all(rank.ended and all(i.done for i in rank.issued) for rank in self.ranks)


def simulate(
    program: Program,
    backend: Backend,
    *,
    stops: Mapping[int, int] | None = None,
    device_stops: Mapping[int, int] | None = None,
    ahead: int = 12,
) -> Run:
    """Run ``program`` to its end or to its hang.

    ``stops``: before which of its actions a rank's host stops for ever.
    ``device_stops``: which of its actions a rank's device never finishes,
    although it does its part for the peers.  ``ahead``: how many unfinished
    operations a host may have enqueued on NCCL.
    """
    return _Machine(program, backend, stops or {}, device_stops or {}, ahead).run()


class _Machine:
    def __init__(
        self,
        program: Program,
        backend: Backend,
        stops: Mapping[int, int],
        device_stops: Mapping[int, int],
        ahead: int,
    ) -> None:
        self._program = program
        self._backend = backend
        self._stops = stops
        self._device_stops = device_stops
        self._ahead = ahead
        self._ranks = [RankRun() for _ in program.actions]
        size = program.world_size
        self._seqs = [defaultdict[int, int](int) for _ in range(size)]
        self._p2p_seqs = [defaultdict[int, int](int) for _ in range(size)]
        self._op_ids = [defaultdict[int, int](int) for _ in range(size)]
        #: Issued actions that have not finished, by index.
        self._open: list[list[int]] = [[] for _ in range(size)]
        #: (group, seq) -> rank -> index of its action
        self._collectives: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        #: (group, src, dst) -> running sends and receives, in order
        self._sends: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        self._receives: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        #: What may have changed since it was looked at: only an operation that ends moves a
        #: rank, and only one that starts ends a collective.  Large jobs need this.
        self._awake = set(range(size))
        self._entered: dict[tuple[int, int], None] = {}

    def run(self) -> Run:
        moved = True
        while moved:
            moved = False
            awake, self._awake = sorted(self._awake), set()
            for rank in awake:
                while self._issue(rank):
                    moved = True
                if self._start(rank):
                    moved = True
            if self._finish():
                moved = True
        for rank, state in enumerate(self._ranks):
            actions = self._program.actions[rank]
            state.ended = len(state.issued) == len(actions) and not self._waits(rank)
        return Run(self._program, self._backend, self._ranks)

    def _waits(self, rank: int) -> bool:
        """True if the rank's host is blocked by what it has issued."""
        issued, open_ = self._ranks[rank].issued, self._open[rank]
        if not issued or not open_:
            return False
        last = issued[-1].action
        actions = self._program.actions[rank]
        if last.batch and len(issued) < len(actions):
            if actions[len(issued)].batch == last.batch:
                return False
        if self._backend == "nccl":
            return last.joins or len(open_) >= self._ahead
        if last.batch:
            return any(issued[i].action.batch == last.batch for i in open_)
        if last.joins:
            return True
        return not last.overlap and not issued[-1].done

    def _issue(self, rank: int) -> bool:
        actions = self._program.actions[rank]
        issued = self._ranks[rank].issued
        following = len(issued)
        if following >= len(actions) or self._stops.get(rank) == following or self._waits(rank):
            return False
        action = actions[following]
        same_batch = bool(action.batch and issued and issued[-1].action.batch == action.batch)
        group = action.group
        self._op_ids[rank][group] += 1
        if action.p2p:
            if not same_batch:
                self._p2p_seqs[rank][group] += 1
        else:
            self._seqs[rank][group] += 1
        issued.append(
            Issued(
                action,
                self._seqs[rank][group],
                self._p2p_seqs[rank][group],
                self._op_ids[rank][group],
            )
        )
        self._open[rank].append(following)
        return True

    def _start(self, rank: int) -> bool:
        """Start what the rank's device (on gloo: its host) can start."""
        issued, open_ = self._ranks[rank].issued, self._open[rank]
        moved = False
        for index in open_:
            entry = issued[index]
            if entry.running or not self._may_start(issued, open_, index):
                continue
            entry.running = True
            moved = True
            self._enter(rank, index, entry)
        return moved

    def _may_start(self, issued: list[Issued], open_: list[int], index: int) -> bool:
        if self._backend == "gloo":
            return True
        entry = issued[index]
        for other in open_:
            if other >= index:
                return True
            before = issued[other].action
            if before.batch and before.batch == entry.action.batch:
                continue
            if not before.overlap or before.group == entry.action.group:
                return False
            if entry.action.joins:
                return False
        return True

    def _enter(self, rank: int, index: int, entry: Issued) -> None:
        action = entry.action
        if not action.p2p:
            self._collectives[action.group, entry.seq][rank] = index
            self._entered[action.group, entry.seq] = None
            return
        members = self._program.groups[action.group].members
        me = members.index(rank)
        peer = -1 if action.peer is None else action.peer
        if action.op == "send":
            self._sends[action.group, me, peer].append((rank, index))
        else:
            self._receives[action.group, peer, me].append((rank, index))

    def _done(self, rank: int, index: int) -> None:
        if self._device_stops.get(rank, len(self._ranks[rank].issued)) <= index:
            return
        self._ranks[rank].issued[index].done = True
        self._open[rank].remove(index)
        self._awake.add(rank)

    def _finish(self) -> bool:
        moved = False
        touched, self._entered = self._entered, {}
        for key in touched:
            entered = self._collectives[key]
            members = self._program.groups[key[0]].members
            if len(entered) == len(members) and self._agree(entered, members):
                moved = True
                for rank, index in entered.items():
                    self._done(rank, index)
                del self._collectives[key]
        for channel, sends in list(self._sends.items()):
            while sends:
                receives = self._receives[channel]
                if not receives:
                    receives = self._receives[channel[0], -1, channel[2]]
                if not receives:
                    break
                moved = True
                self._done(*sends.pop(0))
                self._done(*receives.pop(0))
        return moved

    def _agree(self, entered: Mapping[int, int], members: Sequence[int]) -> bool:
        """True if the calls under one number can finish together: what is known is equal."""
        actions = {rank: self._ranks[rank].issued[index].action for rank, index in entered.items()}
        return agree(actions.values()) and _splits_agree([actions[rank].splits for rank in members])


def agree(actions: Collection[Action]) -> bool:
    """True if calls under one number may be of one operation: what is known of them is equal."""
    known: tuple[Collection[object], ...] = (
        {action.op for action in actions},
        {action.numel for action in actions if action.op != "all_to_all"} - {UNKNOWN},
        {action.dtype for action in actions} - {""},
        {action.root for action in actions} - {None},
    )
    return all(len(values) < 2 for values in known)


def _splits_agree(splits: Sequence[SplitLists | None]) -> bool:
    """True if each takes from each what that one sends; lists in the order of the members."""
    known = [(place, mine) for place, mine in enumerate(splits) if mine is not None]
    return all(mine[0][there] == other[1][here] for here, mine in known for there, other in known)
