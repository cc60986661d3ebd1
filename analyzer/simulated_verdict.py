"""The verdict on a Program that is simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.rendering import Style, to_rank_dump
from hanglab.analyzer.program.simulation import Backend, Run, simulate
from hanglab.analyzer.verdict import Inputs, Verdict
from hanglab.recorder.case.backends import backend_of

#: Calls as a script makes them that has a function for each line of the job.
_STYLE = Style(depth=0, functions=True, boundary=True)
#: Operations that hosts may launch ahead of an enqueuing device: CUDA's pending launches.
_AHEAD = 1024


@dataclass(frozen=True)
class Simulation:
    """A program's run until nothing moves any more, and the verdict on its dumps."""

    run: Run
    verdict: Verdict


def semantics_of(backend: str) -> Backend:
    """The backend of the two that are simulated whose semantics one has."""
    return "nccl" if backend_of(backend).enqueued else "gloo"


def simulated(program: Program, backend: Backend = "gloo") -> Simulation:
    if backend == "nccl":
        program = _with_joining_barriers(program)
    run = simulate(program, backend, ahead=_AHEAD)
    ranks = range(program.world_size)
    dumps = [to_rank_dump(run, rank, _STYLE) for rank in ranks]
    facts = CaseFacts(
        graph=build_wait_for_graph(dumps, expected=list(ranks)),
        ranks={rank: RankView(rank=rank, has_dump=True) for rank in ranks},
        dumps={dump.rank: dump for dump in dumps},
        inputs=Inputs(ranks=len(ranks)),
    )
    return Simulation(run, conclude(facts))


def _with_joining_barriers(program: Program) -> Program:
    """The program with hosts that wait in barriers, as NCCL's do in no other collective."""
    return replace(
        program,
        actions=tuple(
            tuple(
                replace(action, joins=True)
                if action.op == "barrier" and not action.overlap
                else action
                for action in mine
            )
            for mine in program.actions
        ),
    )
