"""Programs run as gloo and NCCL would run them."""

from __future__ import annotations

import pytest

from hanglab.analyzer.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.simulation import Backend, Run, simulate

WORLD = (ProgramGroup("0", (0, 1), "default_pg"),)
REDUCE = Action("all_reduce", 0, site=10)
SEND, RECV = Action("send", 0, peer=1), Action("recv", 0, peer=0)
BACKENDS: tuple[Backend, ...] = ("gloo", "nccl")


def program(*actions: tuple[Action, ...]) -> Program:
    return Program(WORLD, actions)


def done(run: Run, rank: int) -> list[bool]:
    return [issued.done for issued in run.ranks[rank].issued]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_matches_ends(backend: Backend) -> None:
    run = simulate(program((REDUCE, SEND, REDUCE), (REDUCE, RECV, REDUCE)), backend)
    assert not run.stuck
    assert done(run, 0) == [True] * 3
    assert [(i.seq, i.p2p_seq, i.op_id) for i in run.ranks[0].issued] == [
        (1, 0, 1),
        (1, 1, 2),
        (2, 1, 3),
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_that_stops_holds_its_peers_up(backend: Backend) -> None:
    run = simulate(program((REDUCE, REDUCE), (REDUCE, REDUCE)), backend, stops={1: 1})
    assert run.stuck
    assert done(run, 0) == [True, False]
    assert done(run, 1) == [True]


def test_gloo_blocks_the_host_and_nccl_does_not() -> None:
    two = (REDUCE, REDUCE)
    gloo = simulate(program(two, two), "gloo", stops={1: 0})
    nccl = simulate(program(two, two), "nccl", stops={1: 0})
    assert (len(gloo.ranks[0].issued), len(nccl.ranks[0].issued)) == (1, 2)
    assert [issued.running for issued in nccl.ranks[0].issued] == [True, False]


def test_a_device_that_stops_does_its_part_for_the_peers() -> None:
    run = simulate(program((REDUCE, REDUCE), (REDUCE, REDUCE)), "nccl", device_stops={1: 0})
    assert done(run, 0) == [True, False]
    assert done(run, 1) == [False, False]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "wrong",
    [
        Action("broadcast", 0, root=0),
        Action("all_reduce", 0, numel=7),
        Action("all_reduce", 0, dtype="Long"),
    ],
)
def test_what_differs_never_ends(backend: Backend, wrong: Action) -> None:
    assert simulate(program((REDUCE,), (wrong,)), backend).stuck


@pytest.mark.parametrize("backend", BACKENDS)
def test_sends_that_face_sends_block_unless_they_are_a_batch(backend: Backend) -> None:
    def exchange(peer: int, batch: int) -> tuple[Action, ...]:
        return tuple(
            Action(op, 0, peer=peer, batch=batch, joins=not batch) for op in ("send", "recv")
        )

    assert simulate(program(exchange(1, 0), exchange(0, 0)), backend).stuck
    assert not simulate(program(exchange(1, 1), exchange(0, 1)), backend).stuck


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_in_opposite_order_hang(backend: Backend) -> None:
    groups = (*WORLD, ProgramGroup("1", (0, 1)))
    one, other = REDUCE, Action("all_reduce", 1)
    assert simulate(Program(groups, ((one, other), (other, one))), backend).stuck


def test_what_overlaps_lets_gloo_go_on() -> None:
    groups = (*WORLD, ProgramGroup("1", (0, 1)))
    one, other = Action("all_reduce", 0, overlap=True), Action("all_reduce", 1)
    assert not simulate(Program(groups, ((one, other), (other, one))), "gloo").stuck
