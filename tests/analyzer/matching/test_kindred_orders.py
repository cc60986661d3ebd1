"""Workers of one server do alike: who of them went on otherwise left the order, not the server."""

from __future__ import annotations

import pytest
from graph_rows import RECV, SEND, Called, dump_of

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

WORLD, WORKERS = "0", "1"
WORK: list[Called] = [
    *[(WORLD, SEND, 47, 0), (WORLD, RECV, 48, 0)] * 2,
    (WORKERS, "all_reduce", 49, 64),
]
SENT, TAKEN = WORK[:2]


def found(orders: list[list[Called]], opened: list[int]) -> Finding:
    """Each rank's calls, of which the last so many are open."""
    size = len(orders)
    members = {WORLD: range(size), WORKERS: range(1, size)}
    dumps = [dump_of(rank, calls, opened[rank], members) for rank, calls in enumerate(orders)]
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    return finding


def server(rounds: int, workers: int) -> list[Called]:
    every = range(1, workers + 1)
    takes = [(WORLD, RECV, 37, one) for one in every]
    return [*takes, *((WORLD, SEND, 42, one) for one in every)] * rounds


@pytest.mark.parametrize("wrong", [1, 3])
@pytest.mark.parametrize("instead", [RECV, SEND])
def test_a_worker_that_repeats_a_message_is_named_in_its_second_round(
    wrong: int, instead: str
) -> None:
    """It receives, or sends, twice where the others do either by turns; its server keeps to all."""
    orders = [[*server(2, 4), *server(1, 4)[:wrong]], *([*WORK] for _ in range(4))]
    opened = [1, *(1 if rank <= wrong else 2 for rank in range(1, 5))]
    if instead == SEND:
        orders[0] = [*server(2, 4), *server(1, 4)[: 4 + wrong]]
        opened = [1] * 5
    for rank in range(1, 5):
        orders[rank] += [SENT, TAKEN]
        if instead == SEND and rank < wrong:
            orders[rank].append(SENT)
    orders[wrong] = [*WORK, TAKEN] if instead == RECV else [*WORK, SENT, SENT]
    finding = found(orders, opened)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [wrong])
    assert "went on otherwise than 3 ranks" in finding.summary


def test_of_two_workers_either_may_have_left_their_order() -> None:
    orders = [[*server(2, 2), server(1, 2)[0]], [*WORK, TAKEN], [*WORK, SENT, TAKEN]]
    assert found(orders, [1, 1, 2]).culprits != [1]


@pytest.mark.parametrize("rounds", [2, 5, 50])
def test_a_worker_with_a_part_of_its_own_is_not_held_to_the_others(rounds: int) -> None:
    """Rank 1 has lines of its own since its first round; it is the server that repeats a send."""
    alike = [SENT, TAKEN]
    chief: list[Called] = [(WORLD, SEND, 60, 0), (WORLD, RECV, 61, 0)]
    served = server(1 + rounds, 3)
    orders = [[*served, *served[:3], served[3], served[3]]]
    orders += [[*alike, *(chief if rank == 1 else alike) * (rounds + 1)] for rank in (1, 2, 3)]
    orders[1] += chief
    finding = found(orders, [1, 2, 1, 1])
    assert finding.culprits != [1]
