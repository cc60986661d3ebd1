"""A player of programs: hosts that run ahead or block, devices that go stream by stream.

It works through events in the order of their times, so a cut at any time is a state that
the job was in.  On NCCL a communicator is one stream of a device, and so is each pair of
ranks that sends singly; a batch of sends and receives lies on its group's.  On gloo a
group has two worker threads, and a send or a receive waits in no queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from hanglab.harness.trials.programs import (
    ANY,
    Await,
    Batch,
    Compute,
    Issue,
    Program,
    Signal,
    Wait,
    issues_of,
)

#: Milliseconds that a matched operation takes on the device, and that a host takes to issue one.
OPERATION_MS = 0.2
ISSUE_MS = 0.01
#: Operations of one gloo group that run at once.
GLOO_WORKERS = 2

Thread = tuple[int, int]


@dataclass(eq=False, slots=True)
class Played:
    """One issued operation or batch; times in milliseconds, ``inf`` for never."""

    rank: int
    thread: int
    #: Its place among the operations of the rank, and the step of its thread.
    number: int
    at: int
    step: Issue | Batch
    #: Those of the step, the group they are of, and whether it is gloo's.
    parts: tuple[Issue, ...]
    group: str
    gloo: bool
    created: float
    started: float = inf
    done: float = inf
    stream: tuple[object, ...] | None = None
    follows: tuple[Played, ...] = ()
    parts_left: int = 1


@dataclass(eq=False, slots=True)
class Play:
    program: Program
    operations: list[list[Played]]
    #: (rank, thread) to the step that it never got past.
    unfinished: dict[Thread, int] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """An issued operation never ends."""
        return any(o.done == inf for operations in self.operations for o in operations)

    @property
    def last_event(self) -> float:
        times = [t for mine in self.operations for o in mine for t in (o.created, o.done)]
        return max((t for t in times if t < inf), default=0.0)


@dataclass(frozen=True)
class Stops:
    """Hosts and devices that stop for ever."""

    #: (rank, thread) to the step before which it stops.
    hosts: dict[Thread, int] = field(default_factory=dict)
    #: Rank to the number of its operations that its device runs.
    devices: dict[int, int] = field(default_factory=dict)
    #: Rank, number and place in its batch of an operation that never ends, for none who is in it.
    stalled: tuple[int, int, int] | None = None
    #: Rank and number of a part that never ends, although those of others do.
    cut: tuple[int, int] | None = None
    #: Rank to the number of an operation that all later ones of its thread follow.
    followed: dict[int, int] = field(default_factory=dict)


def play(program: Program, stops: Stops | None = None) -> Play:
    """Play to the end, or to where nothing can proceed."""
    return _Player(program, stops or Stops()).run()


class _Player:
    def __init__(self, program: Program, stops: Stops) -> None:
        self.program = program
        self.stops = stops
        self.issued: list[list[Played]] = [[] for _ in program.ranks]
        self.heap: list[tuple[float, int, Callable[[float], None]]] = []
        self.pushed = 0
        self.at: dict[Thread, int] = {
            (r, t): 0 for r, threads in enumerate(program.ranks) for t in range(len(threads))
        }
        self.works: dict[Thread, dict[str, Played]] = {one: {} for one in self.at}
        self.follows: dict[Thread, list[Played]] = {one: [] for one in self.at}
        self.sleeping: dict[object, list[Thread]] = {}  # what they wait for
        self.signals: set[tuple[int, str]] = set()
        self.streams: dict[tuple[object, ...], deque[Played]] = {}
        self.pending: list[list[Played]] = [[] for _ in program.ranks]  # issued, not started
        self.running = [0] * program.size  # open operations on the device
        self.slots: dict[tuple[object, ...], list[_Slot]] = {}
        self.counts: dict[tuple[object, ...], int] = {}
        self.mail: dict[tuple[object, ...], list[tuple[Issue, Played]]] = {}

    def run(self) -> Play:
        for one in self.at:
            self.push(0.0, lambda now, one=one: self.resume(one, now))  # type: ignore[misc]
        while self.heap:
            now, _, event = heappop(self.heap)
            event(now)
        unfinished = {
            (r, t): at for (r, t), at in self.at.items() if at < len(self.program.ranks[r][t])
        }
        return Play(self.program, self.issued, unfinished)

    def push(self, when: float, event: Callable[[float], None]) -> None:
        self.pushed += 1
        heappush(self.heap, (when, self.pushed, event))

    # Hosts

    def resume(self, one: Thread, now: float) -> None:
        rank, thread = one
        steps = self.program.ranks[rank][thread]
        end = min(len(steps), self.stops.hosts.get(one, len(steps)))
        while self.at[one] < end:
            step = steps[self.at[one]]
            later = now
            if isinstance(step, Compute):
                later = now + step.ms
            elif isinstance(step, Signal):
                self.signals.add((rank, step.name))
                self.wake((rank, step.name), now)
            elif isinstance(step, Await):
                if (rank, step.name) not in self.signals:
                    self.sleeping.setdefault((rank, step.name), []).append(one)
                    return
            elif isinstance(step, Wait):
                work = self.works[one].get(step.work)
                if work is not None and work.done > now:
                    if step.host or work.gloo:
                        self.sleeping.setdefault(id(work), []).append(one)
                        return
                    self.follows[one].append(work)
            else:
                if self.running[rank] >= self.program.transport.queue:
                    self.sleeping.setdefault(rank, []).append(one)
                    return
                self.issue(one, step, now)
                later = now + ISSUE_MS
            self.at[one] += 1
            if later > now:
                self.push(later, lambda then: self.resume(one, then))
                return

    def wake(self, cause: object, now: float) -> None:
        for one in self.sleeping.pop(cause, []):
            self.push(now, lambda then, one=one: self.resume(one, then))  # type: ignore[misc]

    def issue(self, one: Thread, step: Issue | Batch, now: float) -> None:
        rank, thread = one
        parts = issues_of(step)
        group = parts[0].group
        gloo = self.program.groups[group].backend == "gloo"
        number = len(self.issued[rank])
        played = Played(rank, thread, number, self.at[one], step, parts, group, gloo, now)
        played.parts_left = len(parts)
        if not gloo:
            self.follows[one] = [work for work in self.follows[one] if work.done > now]
            followed = self.stops.followed.get(rank, number)
            if followed < number and self.issued[rank][followed].thread == thread:
                self.follows[one].append(self.issued[rank][followed])
            played.follows = tuple(self.follows[one])
            self.running[rank] += 1
        peer = parts[0].peer
        if isinstance(step, Batch) or peer is None:
            played.stream = (rank, played.group)
        elif not gloo:
            played.stream = (rank, played.group, peer)
        self.issued[rank].append(played)
        self.works[one][step.work] = played
        if played.stream is not None:
            self.streams.setdefault(played.stream, deque()).append(played)
        self.pending[rank].append(played)
        self.launch(rank, now)

    # Devices

    def launch(self, rank: int, now: float) -> None:
        """Start what can; each look asks only for what is open now, so the order is no matter."""
        again = True
        while again:
            again = False
            for played in list(self.pending[rank]):
                if self.can_start(played, now):
                    self.pending[rank].remove(played)
                    played.started = now
                    again = True
                    for part in played.parts:
                        self.meet(part, played, now)

    def can_start(self, played: Played, now: float) -> bool:
        gloo = played.gloo
        if played.stream is not None:
            stream = self.streams[played.stream]
            while stream[0].done <= now:
                stream.popleft()
            before = 0
            for other in stream:
                if other is played:
                    break
                before += other.done > now
                if other.started > now:
                    return False
            if before >= (GLOO_WORKERS if gloo else 1):
                return False
        if gloo:
            return True
        if played.number >= self.stops.devices.get(played.rank, played.number + 1):
            return False
        if any(work.done > now for work in played.follows):
            return False
        lanes = self.program.transport.lanes
        if lanes > len(self.issued[played.rank]):
            return True
        mine = self.issued[played.rank][: played.number]
        return sum(o.done > now for o in mine if not o.gloo) < lanes

    def meet(self, part: Issue, played: Played, now: float) -> None:
        if part.peer is not None:
            self.meet_peer(part, played, now)
            return
        name = self.program.name(played.rank, part.group)
        members = self.program.groups[part.group].members
        key = (name, members)
        mine = (played.rank, *key)
        count = self.counts.get(mine, 0)
        self.counts[mine] = count + 1
        slots = self.slots.setdefault(key, [])
        while len(slots) <= count:
            slots.append(
                _Slot(members, self.program.transport.eager, self.program.transport.tolerant)
            )
        slot = slots[count]
        slot.stalled = slot.stalled or self.is_stalled(part, played)
        for ended in slot.arrive(part, played):
            self.end_part(ended, now)

    def meet_peer(self, part: Issue, played: Played, now: float) -> None:
        assert part.peer is not None
        batch = isinstance(played.step, Batch)
        name = self.program.name(played.rank, part.group)
        eager = self.program.transport.eager
        if part.kind == "send":
            ends = (played.rank, part.peer)
            if eager and not self.is_stalled(part, played):
                self.end_part(played, now)
            key: tuple[object, ...] = (name, batch, *ends)
            waiting = self.mail.get(("recv", *key)) or self.mail.get(
                ("recv", name, batch, ANY, ends[1])
            )
            if not waiting:
                self.mail.setdefault(("send", *key), []).append((part, played))
                return
            other, receiver = waiting.pop(0)
            if self.agree(part, other) and not (
                self.is_stalled(part, played) or self.is_stalled(other, receiver)
            ):
                self.end_part(receiver, now)
                if not eager:
                    self.end_part(played, now)
            return
        senders = [part.peer]
        if part.peer == ANY:
            senders = [m for m in self.program.groups[part.group].members if m != played.rank]
        for sender in senders:
            waiting = self.mail.get(("send", name, batch, sender, played.rank))
            if waiting:
                other, source = waiting.pop(0)
                if self.agree(part, other) and not (
                    self.is_stalled(part, played) or self.is_stalled(other, source)
                ):
                    self.end_part(played, now)
                    if not eager:
                        self.end_part(source, now)
                return
        key = ("recv", name, batch, part.peer, played.rank)
        self.mail.setdefault(key, []).append((part, played))

    def agree(self, one: Issue, other: Issue) -> bool:
        same = (one.numel, one.dtype) == (other.numel, other.dtype)
        return same or self.program.transport.tolerant

    def is_stalled(self, part: Issue, played: Played) -> bool:
        if self.stops.stalled is None:
            return False
        rank, number, place = self.stops.stalled
        here = played.parts[place : place + 1]
        return (played.rank, played.number) == (rank, number) and any(one is part for one in here)

    def end_part(self, played: Played, now: float) -> None:
        if (played.rank, played.number) == self.stops.cut:
            return
        self.push(now + OPERATION_MS, lambda then: self.ended(played, then))

    def ended(self, played: Played, now: float) -> None:
        played.parts_left -= 1
        if played.parts_left:
            return
        played.done = now
        if not played.gloo:
            self.running[played.rank] -= 1
            self.wake(played.rank, now)
        self.wake(id(played), now)
        self.launch(played.rank, now)


class _Slot:
    """The parts of one collective."""

    def __init__(self, members: tuple[int, ...], eager: bool, tolerant: bool) -> None:
        self.members = members
        self.eager = eager
        self.tolerant = tolerant
        self.parts: dict[int, tuple[Issue, Played]] = {}
        self.ended: set[int] = set()
        self.stalled = False

    def arrive(self, part: Issue, played: Played) -> list[Played]:
        """Those who can end now."""
        self.parts[played.rank] = part, played
        if self.stalled:
            return []
        now = [m for m in self.parts if m not in self.ended and self.can_end(m)]
        self.ended.update(now)
        return [self.parts[member][1] for member in now]

    def can_end(self, member: int) -> bool:
        part = self.parts[member][0]
        if part.gives:
            return all(self.exchanged(member, other) for other in self.members)
        needed: tuple[int, ...] = self.members
        if self.eager and part.root is not None:
            if part.kind in ("broadcast", "scatter"):
                needed = (member, part.root)
            elif member != part.root:
                needed = (member,)
        if any(other not in self.parts for other in needed):
            return False
        return all(self.agree(part, self.parts[other][0]) for other in needed)

    def agree(self, one: Issue, other: Issue) -> bool:
        if one.kind != other.kind or bool(one.gives) != bool(other.gives):
            return False
        same = (one.numel, one.dtype, one.root) == (other.numel, other.dtype, other.root)
        return same or self.tolerant

    def exchanged(self, one: int, other: int) -> bool:
        if other not in self.parts or not self.agree(self.parts[one][0], self.parts[other][0]):
            return False
        mine, theirs = self.parts[one][0], self.parts[other][0]
        here, there = self.members.index(one), self.members.index(other)
        if not len(mine.gives) == len(theirs.gives) == len(self.members):
            return False  # It is another group's.
        return mine.gives[there] == theirs.takes[here] and theirs.gives[here] == mine.takes[there]
