"""Losses on the way from a job to the folder that somebody analyzes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random

from hanglab.harness.trials.player import Play
from hanglab.harness.trials.programs import issues_of


@dataclass(frozen=True)
class Loss:
    """Of one job: what its dumps do not hold, and how they are written."""

    #: Milliseconds after the start at which each rank was dumped; ``inf``: once nothing moves.
    moments: tuple[float, ...]
    #: Seconds from the last event of the job to the dump, for moments that are ``inf``.
    waited_s: float = 600.0
    missing: frozenset[int] = frozenset()
    #: Entries that each rank's ring holds.
    rings: tuple[int, ...] = ()
    active_only: bool = False
    #: The job ran with timing, so that its buffers tell what has started.
    timing: bool = False
    versions: tuple[str, ...] = ()
    json: frozenset[int] = frozenset()
    frames: bool = True
    #: Lines whose calls autograd's thread makes for the rank's first one, which waits for it.
    backward: frozenset[int] = frozenset()
    #: Entries of gloo groups stand in the rings of NCCL's.
    gloo_beside: bool = True
    file_times: bool = True
    #: What lies in the folder besides: see :mod:`folders`.
    company: str = ""
    #: Names of kinds of loss, for tables.
    kinds: tuple[str, ...] = field(default=(), compare=False)

    @property
    def settled(self) -> bool:
        """All ranks were dumped once nothing moved."""
        return all(moment == inf for moment in self.moments)


KINDS = (
    "missing", "wrapped", "skewed", "active_only", "versions", "json", "file_times", "moments",
    "running", "another_job", "earlier_attempt", "earlier_moment",
)  # fmt: skip


def no_loss(play: Play, waited_s: float = 600.0) -> Loss:
    size = play.program.size
    return Loss((inf,) * size, waited_s, rings=(2000,) * size, versions=("2.10",) * size)


def lines_of_backward(random: Random, play: Play) -> frozenset[int]:
    """Some lines of the first threads, in each fourth job; torch hands no calls of gloo over."""
    program = play.program
    if random.random() < 0.75 or any(one.backend == "gloo" for one in program.groups.values()):
        return frozenset()
    steps = [step for threads in program.ranks for step in threads[0]]
    lines = sorted({issue.line for step in steps for issue in issues_of(step)})
    return frozenset(random.sample(lines, random.randint(0, max(0, len(lines) - 1))))


def random_loss(random: Random, play: Play, kinds: tuple[str, ...]) -> Loss:
    size, last = play.program.size, play.last_event
    values = dict(vars(no_loss(play)))
    values |= {
        "kinds": kinds,
        "timing": random.random() < 0.2,
        "gloo_beside": random.random() < 0.7,
    }
    ranks = list(range(size))
    for kind in kinds:
        if kind == "missing":
            values["missing"] = frozenset(
                random.sample(ranks, random.randint(1, max(1, size // 3)))
            )
        elif kind == "wrapped":
            values["rings"] = (random.randint(3, 30),) * size
        elif kind == "skewed":
            values["rings"] = tuple(random.randint(4, 40) for _ in ranks)
        elif kind == "active_only":
            values["active_only"] = True
        elif kind == "versions":
            versions = random.sample(("2.4", "2.9", "2.10"), 2)
            values["versions"] = tuple(random.choice(versions) for _ in ranks)
        elif kind == "json":
            some = ranks if random.random() < 0.5 else random.sample(ranks, random.randint(1, size))
            values["json"] = frozenset(some)
        elif kind == "file_times":
            values["file_times"] = False
        elif kind == "moments":
            early = random.sample(ranks, random.randint(1, size - 1))
            values["moments"] = tuple(
                random.uniform(0, last) if rank in early else inf for rank in ranks
            )
        elif kind == "running":
            when = random.uniform(0, last)
            spread = random.choice((0.0, 0.0, 3.0))
            values["moments"] = tuple(when + random.uniform(0, spread) for _ in ranks)
        else:
            values["company"] = kind
    return Loss(**values)
