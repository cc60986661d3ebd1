"""A player of programs on NCCL: threads that run ahead, and devices that go stream by stream.

Times are the earliest that order and dependences allow.  They do not depend on the
order in which the player looks, so a cut at any time is a state that the job was in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from .programs import Compute, Issue, Program, Wait

#: Operations of one rank that its launch queue holds before the host blocks.
LAUNCH_QUEUE = 1024
#: Milliseconds that a matched operation takes on the device.
OPERATION_MS = 0.2


@dataclass(eq=False)
class Played:
    """One issued operation; times in milliseconds, ``inf`` for never."""

    rank: int
    thread: int
    issue: Issue
    created: float
    after: list[Played]
    ready: float = inf
    done: float = inf


@dataclass
class Play:
    program: Program
    operations: list[list[Played]]
    #: (rank, thread) of threads that did not reach their end.
    unfinished: set[tuple[int, int]] = field(default_factory=set)

    @property
    def open(self) -> bool:
        """An issued operation never ends."""
        return any(o.done == inf for operations in self.operations for o in operations)

    @property
    def stuck(self) -> bool:
        return bool(self.unfinished) or self.open


def stream_of(played: Played) -> tuple[object, ...]:
    """The device stream: one a communicator, for point-to-point one a pair of ranks."""
    issue = played.issue
    if issue.peer is None:
        return played.rank, issue.group
    return played.rank, issue.group, min(played.rank, issue.peer), max(played.rank, issue.peer)


def play(
    program: Program,
    *,
    host_stops: dict[tuple[int, int], int] | None = None,
    device_stops: dict[int, int] | None = None,
    queue: int = LAUNCH_QUEUE,
) -> Play:
    """Play to the end, or to where nothing can proceed.

    ``host_stops`` maps (rank, thread) to the step before which it stops for ever;
    ``device_stops`` a rank to the number of its operations that its device runs.
    """
    host_stops, device_stops = host_stops or {}, device_stops or {}
    issued: list[list[Played]] = [[] for _ in program.ranks]
    streams: dict[tuple[object, ...], list[Played]] = {}
    threads = [(r, t) for r, threads in enumerate(program.ranks) for t in range(len(threads))]
    at = dict.fromkeys(threads, 0)
    clock = dict.fromkeys(threads, 0.0)
    works: dict[tuple[int, int], dict[str, Played]] = {one: {} for one in threads}
    follows: dict[tuple[int, int], list[Played]] = {one: [] for one in threads}

    def advance(one: tuple[int, int]) -> bool:
        rank, thread = one
        steps = program.ranks[rank][thread]
        if at[one] >= min(len(steps), host_stops.get(one, len(steps))):
            return False
        step = steps[at[one]]
        if isinstance(step, Compute):
            clock[one] += step.ms
        elif isinstance(step, Wait):
            work = works[one].get(step.work)
            if work is not None and step.host:
                if work.done == inf:
                    return False
                clock[one] = max(clock[one], work.done)
            elif work is not None:
                follows[one] = [*follows[one], work]
        else:
            held = sum(o.done == inf for o in issued[rank])
            if held >= queue:
                return False
            played = Played(rank, thread, step, clock[one], follows[one])
            if rank in device_stops and len(issued[rank]) >= device_stops[rank]:
                played.after = [*played.after, played]
            issued[rank].append(played)
            streams.setdefault(stream_of(played), []).append(played)
            works[one][step.work] = played
            clock[one] += 0.01
        at[one] += 1
        return True

    def run_device() -> bool:
        moved = False
        for stream in streams.values():
            before = 0.0
            for played in stream:
                if played.ready == inf:
                    times = [played.created, before, *(o.done for o in played.after)]
                    played.ready = max(times)
                    moved |= played.ready < inf
                before = played.done
                if before == inf:
                    break
        for group in _matched(program, issued):
            if all(o.ready < inf and o.done == inf for o in group):
                done = max(o.ready for o in group) + OPERATION_MS
                for played in group:
                    played.done = done
                moved = True
        return moved

    moving = True
    while moving:
        moving = False
        for one in sorted(threads, key=lambda one: clock[one]):
            while advance(one):
                moving = True
        moving |= run_device()
    unfinished = {(r, t) for r, t in threads if at[r, t] < len(program.ranks[r][t])}
    return Play(program, issued, unfinished)


def _matched(program: Program, issued: list[list[Played]]) -> list[list[Played]]:
    """Operations that run together: all parts are there, and they agree."""
    collectives: dict[str, dict[int, list[Played]]] = {}
    pairs: dict[tuple[str, int, int], tuple[list[Played], list[Played]]] = {}
    for rank, operations in enumerate(issued):
        for played in operations:
            issue = played.issue
            if issue.peer is None:
                collectives.setdefault(issue.group, {}).setdefault(rank, []).append(played)
                continue
            sends = issue.kind == "send"
            ends = (rank, issue.peer) if sends else (issue.peer, rank)
            pairs.setdefault((issue.group, *ends), ([], []))[not sends].append(played)
    found = [[s, r] for sends, receives in pairs.values() for s, r in zip(sends, receives)]  # noqa: B905
    for group, by_rank in collectives.items():
        members = program.groups[group]
        for parts in zip(*(by_rank.get(member, []) for member in members)):  # noqa: B905
            if len({(o.issue.kind, o.issue.numel) for o in parts}) == 1:
                found.append(list(parts))
    return found
