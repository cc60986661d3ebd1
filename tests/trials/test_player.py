"""The player's own invariants, and frontiers that were worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest

from hanglab.harness.trials.dumps import ring_of
from hanglab.harness.trials.losses import no_loss
from hanglab.harness.trials.player import Play, Stops, play
from hanglab.harness.trials.programs import ANY, Batch, Group, Issue, Program, Step, Transport, Wait
from hanglab.harness.trials.shapes import ONLY_SHAPES, SHAPES, Shape

TRANSPORTS = (Transport(), Transport(eager=True), Transport(queue=6))


@pytest.mark.parametrize("shape", sum(ONLY_SHAPES.values(), SHAPES))
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_program_without_fault_ends(shape: Shape, transport: Transport) -> None:
    for seed in range(15):
        played = play(replace(shape(Random(seed)), transport=transport))
        assert not played.open, seed
        assert not played.unfinished, seed


def by_hand(
    *ranks: list[list[Step]], backend: str = "nccl", transport: Transport | None = None
) -> Program:
    everybody = tuple(range(len(ranks)))
    groups = {name: Group(everybody, name, backend) for name in ("0", "1")}
    threads = tuple(tuple(tuple(steps) for steps in mine) for mine in ranks)
    return Program("by hand", groups, threads, transport or Transport())


def states(played: Play, rank: int) -> list[str]:
    return [entry.state for entry in ring_of(played, rank, no_loss(played)).entries]


def test_the_host_runs_ahead_of_a_peer_that_stopped() -> None:
    body: list[Step] = [Issue("0", "all_reduce", work=str(n)) for n in range(3)]
    played = play(by_hand([body], [body]), Stops(hosts={(1, 0): 1}))
    assert states(played, 0) == ["completed", "scheduled", "scheduled"]
    assert states(played, 1) == ["completed"]


def test_a_host_wait_holds_the_thread_and_no_other() -> None:
    waiting: list[Step] = [Issue("0", "all_reduce", work="a"), Wait("a", host=True)]
    waiting += [Issue("0", "all_reduce")]
    aside: list[Step] = [Issue("1", "all_reduce")]
    played = play(by_hand([waiting, aside], [waiting, aside]), Stops(hosts={(1, 0): 0}))
    assert {(o.group, o.done < inf) for o in played.operations[0]} == {("0", False), ("1", True)}
    assert played.unfinished[0, 0] == 1


def test_a_full_launch_queue_holds_the_host() -> None:
    body: list[Step] = [Issue("0", "all_reduce", work=str(n)) for n in range(5)]
    program = by_hand([body], [body], transport=Transport(queue=2))
    played = play(program, Stops(hosts={(1, 0): 1}))
    assert states(played, 0) == ["completed", "scheduled", "scheduled"]


def test_two_communicators_crossed_on_a_device_with_room_for_one() -> None:
    first: list[Step] = [Issue("0", "all_reduce"), Issue("1", "all_reduce")]
    program = by_hand([first], [first[::-1]])
    assert not play(program).open
    crossed = play(replace(program, transport=Transport(lanes=1)))
    assert all(o.done == inf for mine in crossed.operations for o in mine)


def test_a_batch_meets_whatever_order_its_parts_have() -> None:
    def ends(peer: int, *kinds: str) -> list[Step]:
        return [Batch(tuple(Issue("0", kind, peer=peer) for kind in kinds))]

    assert not play(by_hand([ends(1, "send", "recv")], [ends(0, "send", "recv")])).open
    lacking = play(by_hand([ends(1, "send", "recv")], [ends(0, "send")]))
    assert states(lacking, 0) == ["scheduled", "scheduled", "scheduled"]
    assert states(lacking, 1) == ["scheduled", "completed"]


def test_single_sends_of_two_ranks_to_each_other_wait_unless_they_are_eager() -> None:
    def ends(peer: int) -> list[Step]:
        return [Issue("0", "send", peer=peer, work="s"), Issue("0", "recv", peer=peer)]

    program = by_hand([ends(1)], [ends(0)])
    assert all(o.done == inf for mine in play(program).operations for o in mine)
    assert not play(replace(program, transport=Transport(eager=True))).open


def test_a_receive_from_any_source_takes_what_comes_first() -> None:
    def send() -> list[Step]:
        return [Issue("0", "send", peer=0, work="s"), Wait("s", host=True)]

    takes: list[Step] = []
    for number in range(2):
        takes += [Issue("0", "recv", peer=ANY, work=str(number)), Wait(str(number), host=True)]
    program = by_hand([takes], [send()], [send()], backend="gloo")
    assert not play(program).open
    assert play(program, Stops(hosts={(2, 0): 0})).unfinished[0, 0] == 3


def test_uneven_splits_that_disagree_hold_their_pair_alone() -> None:
    gives = {0: (1, 2, 3), 1: (4, 5, 6), 2: (7, 8, 9)}

    def exchange(rank: int, mine: tuple[int, ...]) -> list[Step]:
        takes = tuple(gives[other][rank] for other in range(3))
        return [Issue("0", "all_to_all", gives=mine, takes=takes)]

    ranks = [[exchange(rank, mine)] for rank, mine in gives.items()]
    assert not play(by_hand(*ranks)).open
    ranks[0] = [exchange(0, (1, 3, 3))]
    assert [mine[0].done < inf for mine in play(by_hand(*ranks)).operations] == [False, False, True]
