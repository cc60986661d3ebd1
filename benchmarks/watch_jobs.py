"""Made-up days of training jobs for ``benchmarks/watch.py``: readings of ranks, second by second.

What is made up is what a job does (steps, evaluations, checkpoints, stalls of a file system)
and what a kernel would count of it, never what the detector makes of that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hanglab.harness.watching.signs import Signs

RANKS = 4


class Doing(NamedTuple):
    """One rank over a stretch of time: bytes a second of each kind, and cores."""

    io: float = 0.0
    peers: float = 0.0
    others: float = 0.0
    cores: float = 0.0
    state: str = "S"
    #: Whether samples of its stack would show other functions.
    varied: bool = False


STILL = Doing()
#: One call of native code, or a loop that waits for nothing: always the same functions.
SPIN = Doing(cores=1.0, state="R")
COMPUTE = Doing(cores=0.9, state="R", varied=True)
STOPPED = Doing(state="T")


def is_outside(doing: Doing, rng: random.Random) -> bool:
    """True if a look at its stack finds it outside of communication; in steps, as it computes."""
    if doing.varied:
        return rng.random() < doing.cores
    return doing.cores >= 0.3 or doing.io > 0 or doing.state in "DT"


class Stretch(NamedTuple):
    """Seconds in which each rank does one thing; ``None`` for the rest of the ranks."""

    seconds: float
    first: Doing
    others: Doing | None = None


Day = Callable[[random.Random], Iterator[Stretch]]


def step(seconds: float, peers: float = 4e6, io: float = 2e4, cores: float = 0.6) -> Stretch:
    """Some steps of training in a row: data comes from workers, gradients are exchanged."""
    return Stretch(seconds, Doing(io, peers, 0.0, cores, "R", True))


def steps(rng: random.Random, seconds: float, **kinds: float) -> Iterator[Stretch]:
    """Even steps for so long, a second or two at a time."""
    while seconds > 0:
        part = rng.uniform(0.8, 2.0)
        yield step(part, **kinds)
        seconds -= part


def lognormal(rng: random.Random, median: float, sigma: float) -> float:
    """Seconds with a long tail, as far as ten minutes: no wait of a job that goes on is longer."""
    return min(590.0, median * rng.lognormvariate(0.0, sigma))


def warm_up(rng: random.Random) -> Iterator[Stretch]:
    """Imports, a download at some rate, a compilation below each rank, a slow first step."""
    yield Stretch(rng.uniform(5, 40), Doing(io=5e6, cores=0.8, state="R", varied=True))
    yield Stretch(rng.uniform(0, 400), Doing(others=rng.choice([3e4, 1e6, 5e7]), cores=0.05))
    yield Stretch(rng.uniform(0, 30), STILL)  # rendezvous: the last host comes
    yield Stretch(rng.uniform(0, 240), Doing(io=2e3, cores=2.0))
    yield Stretch(rng.uniform(1, 60), SPIN)


def steady(rng: random.Random) -> Iterator[Stretch]:
    """Even steps, day and night."""
    yield from warm_up(rng)
    while True:
        yield from steps(rng, 600)


def evaluating(rng: random.Random) -> Iterator[Stretch]:
    """All ranks evaluate now and then, out of memory: nothing is read, nothing is exchanged."""
    yield from warm_up(rng)
    while True:
        yield from steps(rng, rng.uniform(600, 3000))
        yield Stretch(lognormal(rng, 90, 0.8), COMPUTE)


def evaluating_first(rng: random.Random) -> Iterator[Stretch]:
    """Rank 0 evaluates while its peers wait in the next collective."""
    yield from warm_up(rng)
    while True:
        yield from steps(rng, rng.uniform(900, 4000))
        yield Stretch(lognormal(rng, 60, 0.7), COMPUTE, STILL)


def checkpointing(rng: random.Random) -> Iterator[Stretch]:
    """Rank 0 writes, then its disk takes a while to have written; the others wait."""
    yield from warm_up(rng)
    size = rng.uniform(5e9, 2e11)
    while True:
        yield from steps(rng, rng.uniform(900, 3600))
        speed = rng.uniform(3e8, 2e9)
        yield Stretch(size / speed, Doing(io=speed, cores=0.4, state="D"), STILL)
        yield Stretch(lognormal(rng, 8, 1.0), Doing(state="D"), STILL)


def recompiling(rng: random.Random) -> Iterator[Stretch]:
    """Shapes change, so that ranks compile: mostly below them, and in one call of their own."""
    yield from warm_up(rng)
    while True:
        yield from steps(rng, rng.uniform(300, 2400))
        yield Stretch(rng.uniform(10, 200), Doing(io=1e3, cores=1.5))
        yield Stretch(lognormal(rng, 5, 1.0), SPIN)


def uneven(rng: random.Random) -> Iterator[Stretch]:
    """Steps as long as what is in the batch: some take a hundred times as long as most."""
    yield from warm_up(rng)
    while True:
        seconds = lognormal(rng, 1.0, 1.4)
        yield Stretch(seconds, COMPUTE, rng.choice([STILL, COMPUTE]))
        yield step(0.1, peers=3e7)


def changing_pace(rng: random.Random) -> Iterator[Stretch]:
    """Sequences grow: what took a second takes a minute, and becomes quick again."""
    yield from warm_up(rng)
    while True:
        for seconds in (0.5, 3.0, 20.0, 70.0):
            for _ in range(rng.randint(20, 60)):
                waits = Doing(cores=0.004)  # for its device, without spinning
                yield Stretch(seconds * rng.uniform(0.8, 1.2), waits)
                yield step(0.3, peers=2e7)


def served(rng: random.Random) -> Iterator[Stretch]:
    """Steps of reinforcement learning: all wait for answers of a server elsewhere."""
    yield from warm_up(rng)
    while True:
        yield Stretch(lognormal(rng, 25, 0.5), STILL)
        yield Stretch(0.5, Doing(others=2e6, cores=0.5))
        yield from steps(rng, rng.uniform(5, 20))


def on_two_hosts(rng: random.Random) -> Iterator[Stretch]:
    """Rank 0 is on another host, where it evaluates and writes; all that is here waits for it."""
    yield from warm_up(rng)
    while True:
        yield from steps(rng, rng.uniform(900, 3600), peers=4e6)
        yield Stretch(lognormal(rng, 60, 0.7), STILL)


def stalling(rng: random.Random) -> Iterator[Stretch]:
    """A file server that stands still now and then, for all."""
    yield from warm_up(rng)
    while True:
        yield from steps(rng, rng.uniform(60, 900), io=5e6)
        yield Stretch(lognormal(rng, 8, 0.9), Doing(state="D"))


def suspended(rng: random.Random) -> Iterator[Stretch]:
    """A scheduler that stops the job for others, and lets it go on."""
    yield from warm_up(rng)
    while True:
        yield from steps(rng, rng.uniform(1200, 6000))
        yield Stretch(rng.uniform(60, 3600), STOPPED)


def small(rng: random.Random) -> Iterator[Stretch]:
    """A few numbers are exchanged every few seconds, and a line is written every minute."""
    yield from warm_up(rng)
    while True:
        for _ in range(10):
            yield Stretch(rng.uniform(2, 9), Doing(cores=0.01))
            yield Stretch(0.1, Doing(peers=400, cores=0.1))
        yield Stretch(0.1, Doing(io=800, cores=0.1), Doing(cores=0.01))


HEALTHY: dict[str, Day] = {
    day.__name__: day
    for day in (
        steady, evaluating, evaluating_first, checkpointing, recompiling, uneven, changing_pace,
        served, on_two_hosts, stalling, suspended, small,
    )
}  # fmt: skip
#: Days of which the detector is told that the job has ranks on other hosts.
ELSEWHERE = {"on_two_hosts"}


def polls(rng: random.Random) -> Doing:
    """Looking at a file ten times a second."""
    return Doing(io=1e3, cores=0.01)


#: Ends: what rank 0 does for ever, and what the others do.
HANGS: dict[str, tuple[Doing, Doing]] = {
    "all wait": (STILL, STILL),
    "one spins, all wait for it": (SPIN, STILL),
    "all spin": (SPIN, SPIN),
    "one is stopped": (STOPPED, STILL),
    "one in the kernel": (Doing(state="D"), STILL),
    "one wakes ten times a second": (Doing(cores=0.005), STILL),
    "one polls a file": (Doing(io=1e3, cores=0.01), STILL),
    "one polls in Python": (Doing(io=5e3, cores=0.3, varied=True), STILL),
    "a loader's worker spins": (Doing(cores=1.0), STILL),
}


@dataclass
class MadeUpJob:
    """The readings of one day; ``hang_s``: seconds after which it hangs as ``hang`` says."""

    day: Day
    seed: int
    hang_s: float = float("inf")
    hang: tuple[Doing, Doing] = (STILL, STILL)
    #: Whether the last reading was of a time in which stacks show other functions, by rank.
    varied: dict[int, bool] = field(default_factory=dict)
    #: Whether a stack of the last reading is outside of communication, by rank.
    outside: dict[int, bool] = field(default_factory=dict)
    #: When it began to hang: at the end of what it did at ``hang_s``.
    hung_s: float = float("inf")

    def readings(self, every_s: float) -> Iterator[tuple[float, dict[int, Signs]]]:
        """Readings of all ranks at a watch's looks, some of which come late."""
        rng, stacks = random.Random(self.seed), random.Random(self.seed)
        stretches = self.day(rng)
        report_s = [rng.uniform(0, 15) for _ in range(RANKS)]
        totals = [[0.0] * 4 for _ in range(RANKS)]
        at, until = 0.0, 0.0
        doing = [STILL] * RANKS
        look = every_s
        while True:
            while at < look:
                if at >= until:
                    if at >= self.hang_s:
                        self.hung_s = at
                        seconds, (first, others) = float("inf"), self.hang
                    else:
                        seconds, first, others = next(stretches)
                    until = at + seconds
                    doing = [first] + [first if others is None else others] * (RANKS - 1)
                end = min(until, look)
                for total, one in zip(totals, doing, strict=True):
                    for at_kind in range(4):
                        total[at_kind] += one[at_kind] * (end - at)
                at = end
            for rank, total in enumerate(totals):
                if at >= report_s[rank]:  # a tracker's, from a thread of its own
                    report_s[rank] += 15.0
                    if doing[rank].state != "T":
                        total[0] += 2500
                        total[2] += 1500
                        total[3] += 0.004
            self.varied = {rank: one.varied for rank, one in enumerate(doing)}
            self.outside = {rank: is_outside(one, stacks) for rank, one in enumerate(doing)}
            yield (
                at,
                {
                    rank: Signs(None, int(io), int(peers), int(others), cores, doing[rank].state)
                    for rank, (io, peers, others, cores) in enumerate(totals)
                },
            )
            look += every_s if rng.random() < 0.999 else rng.uniform(2, 40)
