"""Programs come back out of the dumps that were rendered from them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from hanglab.analyzer.program import Action, Program
from hanglab.analyzer.program.generation import random_program
from hanglab.analyzer.program.reading import read_program
from hanglab.analyzer.program.rendering import Style, to_rank_dump
from hanglab.analyzer.program.simulation import Backend, simulate


def visible(program: Program) -> list[list[tuple[str, Action]]]:
    """Actions as dumps can tell them, with their group's name instead of its index."""
    found = []
    for actions in program.actions:
        batches: dict[int, int] = {}
        mine = []
        for action in actions:
            batch = action.batch and batches.setdefault(action.batch, len(batches) + 1)
            plain = replace(action, group=0, overlap=False, joins=False, batch=batch)
            mine.append((program.groups[action.group].name, plain))
        found.append(mine)
    return found


def without_roots(program: Program) -> Program:
    """NCCL's dumps have no roots, and a barrier of one element for its tensor."""
    actions = [tuple(replace(a, root=None) for a in mine) for mine in program.actions]
    return replace(program, actions=tuple(actions))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_round_trip(seed: int, backend: Backend) -> None:
    program = random_program(Random(seed), world=4, p2p=backend == "nccl")
    run = simulate(program, backend)
    dumps = [to_rank_dump(run, rank, Style(boundary=backend == "gloo")) for rank in range(4)]
    read = read_program(dumps, expected=range(4))
    expected = program if backend == "gloo" else without_roots(program)
    names = {"reduce_scatter"} if backend == "gloo" else set()
    for mine, others in zip(visible(read), visible(expected), strict=True):
        assert len(mine) == len(others)
        for one, other in zip(mine, others, strict=True):
            # gloo calls a reduce_scatter all_reduce.
            if other[1].op not in names:
                assert one == other


def test_a_program_that_was_read_runs() -> None:
    program = random_program(Random(3), world=4)
    run = simulate(program, "nccl")
    dumps = [to_rank_dump(run, rank) for rank in range(4)]
    assert not simulate(read_program(dumps), "gloo").stuck
