"""Random runs to test with: a program, perhaps one fault, dumps with some evidence lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from random_programs import random_program

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.program.faults import FAULTS, NCCL_ONLY, ProgramFault, make_fault
from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.rendering import Style, to_rank_dump
from hanglab.analyzer.program.simulation import Backend, Run, simulate

_VERSIONS = ("2.1", "2.4", "2.4", "2.9", "2.10", "2.10", "2.10")


@dataclass
class RandomRun:
    """``fault`` is None for a healthy one."""

    program: Program
    fault: ProgramFault | None
    run: Run
    style: Style
    missing: frozenset[int]
    rings: dict[int, int | None]

    def dumps(self) -> list[RankDump]:
        return [
            to_rank_dump(self.run, rank, replace(self.style, ring=self.rings[rank]))
            for rank in range(self.run.program.world_size)
            if rank not in self.missing
        ]


def _behind_oldest(run: Run, rank: int) -> int:
    """Number of entries from the rank's oldest unfinished one on."""
    issued = run.ranks[rank].issued
    oldest = next((i for i, one in enumerate(issued) if not one.done), len(issued))
    batches = {one.action.batch for one in issued[oldest:] if one.action.batch}
    return len(issued) - oldest + len(batches) + 2


def random_run(
    random: Random, *, largest: int = 64, kind: str | None = None, healthy: bool | None = None
) -> RandomRun | None:
    """A run; None where the fault has no place in the program or does not hang it."""
    backend: Backend = random.choice(("gloo", "nccl"))
    world = random.choice((2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 16, 24, 32, 64))
    world = min(world, largest)
    program = random_program(random, world=world)
    if healthy is None:
        healthy = random.random() < 0.15
    fault: ProgramFault | None = None
    if not healthy:
        kinds = [k for k in FAULTS if backend == "nccl" or k not in NCCL_ONLY]
        fault = make_fault(program, kind or random.choice(kinds), random.randrange(world), random)
        if fault is None:
            return None
    ahead = random.choice((2, 6, 12, 40))
    run = simulate(program, backend, ahead=ahead)
    if run.stuck:
        raise AssertionError("a generated program hangs by itself")
    if fault is not None:
        run = simulate(
            fault.program,
            backend,
            stops=fault.stops,
            device_stops=fault.device_stops,
            ahead=ahead,
        )
        if not run.stuck:
            return None
    style = Style(
        version=random.choice(_VERSIONS) if backend == "nccl" else "2.10",
        frames=random.random() < 0.6,
        active_only=backend == "nccl" and random.random() < 0.2,
        record_offset=random.choice((0, 0, 0, 100)),
        clock_ns={rank: random.randrange(-(10**10), 10**10) for rank in range(world)},
        timing=random.random() < 0.3,
        boundary=backend == "gloo",
    )
    missing: frozenset[int] = frozenset()
    if random.random() < 0.3:
        missing = frozenset(random.sample(range(world), random.randint(1, max(1, world // 4))))
    rings: dict[int, int | None] = dict.fromkeys(range(world))
    if random.random() < 0.5 and not style.active_only:
        # A ring that drops what is stuck is not of this world: real ones hold 2,000.
        rings = {
            rank: max(random.choice((8, 20, 50)), _behind_oldest(run, rank))
            if random.random() < 0.75
            else None
            for rank in range(world)
        }
    return RandomRun(program, fault, run, style, missing, rings)
