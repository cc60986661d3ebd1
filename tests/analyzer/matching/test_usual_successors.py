"""Ranks that alone went on from a call as nobody does, and those that do so by right."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from graph_rows import RECV, SEND, Called, dump_of

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

#: Groups of the first half of six ranks, and of the second.
WORLD, NEAR, FAR = "0", "1", "2"
MEMBERS = {WORLD: [0, 1, 2, 3, 4, 5], NEAR: [0, 1, 2], FAR: [3, 4, 5]}


def findings(
    ranks: Sequence[Sequence[Called]],
    *,
    idle: Collection[int] = (),
    members: Mapping[str, Sequence[int]] = MEMBERS,
) -> list[Finding]:
    """Findings on ranks that wait in the last of their calls, but for those ``idle``."""
    dumps = [dump_of(r, calls, r not in idle, members) for r, calls in enumerate(ranks)]
    return synchronization_findings(build_wait_for_graph(dumps))


def own(rank: int) -> str:
    return NEAR if rank < 3 else FAR


def training(rank: int) -> list[Called]:
    return [(own(rank), "all_gather", 10, 8), (own(rank), "reduce_scatter", 12, 16)]


@pytest.mark.parametrize("wrong", [0, 2, 4])
def test_a_collective_left_out_before_shards_move(wrong: int) -> None:
    """To whom each rank sends is its own; that nobody does so from that line is not."""
    other = (wrong + 1) % 3 + 3 * (wrong > 2)
    ranks = []
    for rank in range(6):
        held = own(rank) == own(wrong)
        # Its own group waits for it; the other one has come to its messages.
        ranks.append(
            training(rank)
            + ([] if held else [(WORLD, RECV, 22, rank - 3 if rank > 2 else rank + 3)])
        )
    ranks[wrong] = [training(wrong)[0], (WORLD, RECV, 22, other)]
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.SKIPPED_COLLECTIVE, [wrong])


def test_a_rank_that_alone_logs_has_left_nothing_out() -> None:
    """Others cannot come to its line: it is of no group of theirs."""
    ranks = [[(WORLD, "all_reduce", 10, 8), (WORLD, "barrier", 30, 1)] for _ in range(6)]
    ranks[2] = [(WORLD, "all_reduce", 10, 8), (WORLD, SEND, 20, 3)]
    assert all(one.cause is not Cause.SKIPPED_COLLECTIVE for one in findings(ranks))


def test_a_loop_that_data_end_may_take_another_turn() -> None:
    """Those who are at its end have taken as many turns as they had, and so has the rank."""
    turn: list[Called] = [(WORLD, RECV, 20, 0), (WORLD, SEND, 22, 0)]
    ranks = [turn * 2 + [(WORLD, "all_reduce", 30, 8)] for _ in range(6)]
    ranks[0] = [(WORLD, SEND, 10, 1), (WORLD, RECV, 12, 1)] * 2 + [(WORLD, SEND, 10, 4)]
    ranks[4] = turn * 2 + turn[:1]
    assert all(one.culprits != [4] for one in findings(ranks))


#: Six that train, and one that serves all of them.
SERVED = {WORLD: list(range(7)), NEAR: list(range(6))}


def ask(peer: int) -> list[Called]:
    """By a helper that all use."""
    return [(WORLD, SEND, 20, peer), (WORLD, RECV, 22, peer)]


def test_who_asks_a_server_that_stopped_has_left_nothing_out() -> None:
    begin: list[Called] = [*ask(6), (NEAR, "all_reduce", 10, 8)]
    ranks = [[*begin, (NEAR, "barrier", 30, 1)] for _ in range(6)]
    ranks[0] = [*begin, *ask(6)]
    serving = [one for r in range(6) for one in ((WORLD, RECV, 40, r), (WORLD, SEND, 42, r))]
    ranks.append([*serving, (WORLD, RECV, 40, 0)])
    (found,) = findings(ranks, idle=[6], members=SERVED)
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [6])


def test_a_collective_that_all_make_is_nobody_s_extra() -> None:
    """Though one comes to it from a helper, and all others from a line of their own."""
    step: list[Called] = [(NEAR, "all_reduce", 8, 16), (NEAR, "all_reduce", 10, 8)]
    ranks = [[*ask(6), *step, (NEAR, "barrier", 30, 1), *step[:1]] for _ in range(6)]
    ranks[0] = [*ask(6), *step, *ask(6), (NEAR, "barrier", 30, 1), *step[:1]]
    ranks[2][-1] = (WORLD, RECV, 50, 5)
    serving = [one for r in range(6) for one in ((WORLD, RECV, 40, r), (WORLD, SEND, 42, r))]
    ranks.append([*serving, (WORLD, RECV, 40, 0), (WORLD, SEND, 42, 0), (WORLD, RECV, 40, 0)])
    assert all(0 not in one.culprits for one in findings(ranks, members=SERVED))


def test_a_message_that_lacks_is_of_both_its_ends() -> None:
    """Its sender may have left it out, and who waits for it what all others wait in."""
    step: list[Called] = [(WORLD, "all_reduce", 8, 16), (WORLD, "all_gather", 10, 8)]
    ranks = [[*ask(r ^ 1), *step, (WORLD, "barrier", 30, 1)] for r in range(6)]
    ranks[0] = [*ask(1), *step, (WORLD, RECV, 22, 1)]
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [0, 1])


def test_what_a_rank_did_earlier_it_has_not_left_out() -> None:
    """Others of its place are those of its groups: of another replica's calls it makes none."""
    end: list[Called] = [(WORLD, "barrier", 30, 1), (WORLD, "all_reduce", 8, 16)]
    first: Called = (WORLD, "all_reduce", 8, 16)
    gather: Called = (WORLD, "all_gather", 10, 8)
    ranks = [[first, gather, (own(r), "all_reduce", 12, 1), *end] for r in range(6)]
    ranks[0] = [first, (NEAR, "all_reduce", 11, 1), gather, *end]
    ranks[5][-1] = (WORLD, RECV, 50, 4)
    assert all(0 not in one.culprits for one in findings(ranks))
