"""The fault of a trial, and the truth that follows from having put it there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from .player import Play, play
from .programs import SHAPES, Issue, Program, Wait


@dataclass(frozen=True)
class Trial:
    seed: int
    play: Play
    fault: str
    #: The rank that the fault was put into, None in a healthy job.
    culprit: int | None
    #: Ranks that a verdict may not accuse.
    innocent: frozenset[int]

    @property
    def shape(self) -> str:
        return self.play.program.shape


def make_trial(seed: int) -> Trial | None:
    """The trial of that seed; None if its fault does no harm."""
    random = Random(seed)
    program = random.choice(SHAPES)(random)
    everybody = frozenset(range(len(program.ranks)))
    fault = random.choice(("none", "host_stop", "host_stop", "device_stop", "skip", "swap"))
    if fault == "none":
        return Trial(seed, play(program), fault, None, everybody)
    rank = random.randrange(len(program.ranks))
    thread = random.randrange(len(program.ranks[rank]))
    steps = program.ranks[rank][thread]
    issues = [i for i, step in enumerate(steps) if isinstance(step, Issue)]
    guilty = frozenset({rank})
    if fault == "host_stop":
        played = play(program, host_stops={(rank, thread): random.randrange(len(steps))})
    elif fault == "device_stop":
        played = play(program, device_stops={rank: random.randrange(len(issues))})
    elif fault == "skip":
        at = random.choice(issues)
        played = play(program.with_thread(rank, thread, [*steps[:at], *steps[at + 1 :]]))
        guilty |= _partners(program, rank, steps[at])
    else:
        pairs = [(a, b) for a, b in pairwise(issues) if _differ(steps[a], steps[b])]
        if not pairs:
            return None
        a, b = random.choice(pairs)
        changed = list(steps)
        changed[a], changed[b] = steps[b], steps[a]
        # A Wait that stands right behind one of the two goes with it.
        for at, now in ((a + 1, steps[b]), (b + 1, steps[a])):
            step = steps[at] if at < len(steps) else None
            if isinstance(step, Wait) and isinstance(now, Issue):
                changed[at] = replace(step, work=now.work)
        played = play(program.with_thread(rank, thread, changed))
        guilty |= _partners(program, rank, steps[a]) | _partners(program, rank, steps[b])
    if not played.open:
        return None  # No operation shows it, so no dump can.
    return Trial(seed, played, fault, rank, everybody - guilty)


def _differ(one: object, other: object) -> bool:
    return isinstance(one, Issue) and isinstance(other, Issue) and one.group != other.group


def _partners(program: Program, rank: int, step: object) -> frozenset[int]:
    """Who may be named with the culprit: in a pair nothing tells which of the two is odd."""
    assert isinstance(step, Issue)
    if step.peer is not None:
        return frozenset({step.peer})
    members = program.groups[step.group]
    return frozenset(members) if len(members) == 2 else frozenset()
