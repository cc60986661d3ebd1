"""Of ranks that wait for each other the one that left its own rounds brought it about."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from graph_rows import RECV, SEND, Called, dump_of

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

WORLD, PAIR = "0", "1"


def found(
    orders: Sequence[Sequence[Called]], opened: Sequence[int], pair: int = 2
) -> list[Finding]:
    """Of ranks that made these calls, the last of which have not ended."""
    members = {WORLD: range(len(orders)), PAIR: range(pair)}
    dumps = [dump_of(rank, calls, opened[rank], members) for rank, calls in enumerate(orders)]
    return synchronization_findings(build_wait_for_graph(dumps))


def server(*workers: int) -> list[Called]:
    return [
        *((WORLD, RECV, 37, worker) for worker in workers),
        *((WORLD, SEND, 42, worker) for worker in (1, 2, 3)),
    ]


@pytest.mark.parametrize("rounds", [3, 6])
def test_a_server_that_takes_from_one_twice_is_named(rounds: int) -> None:
    """Worker 1 is in its send, worker 2 waits for its answer, and the server for its next."""
    calls = [*server(1, 2, 3) * rounds, *server(2, 2, 3)]
    worker = [(WORLD, SEND, 47, 0), (WORLD, RECV, 47, 0)] * (rounds + 1)
    (finding,) = found([calls, *[worker] * 3], [5, 2, 1, 2], pair=4)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0])


@pytest.mark.parametrize("rounds", [3, 6])
def test_a_server_that_leaves_one_out_is_named(rounds: int) -> None:
    """It answers worker 1, which is in its send."""
    calls = [*server(1, 2, 3) * rounds, *server(2, 3)[:3]]
    worker = [(WORLD, SEND, 47, 0), (WORLD, RECV, 47, 0)] * (rounds + 1)
    (finding,) = found([calls, *[worker] * 3], [1, 2, 1, 1], pair=4)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0])


@pytest.mark.parametrize("line", [29, 25], ids=["its_line", "a_branch_s_line"])
@pytest.mark.parametrize("odd", [0, 1])
def test_one_of_a_pair_that_turns_its_order_round_is_named(odd: int, line: int) -> None:
    """The others only ever call the second of the two."""
    order: list[Called] = [(PAIR, "all_reduce", 17, 64), (WORLD, "all_reduce", 29, 1)]
    turned: list[Called] = [(WORLD, "all_reduce", line, 1), order[0]]
    orders = [order * 4 if rank < 2 else order[1:] * 4 for rank in range(5)]
    orders[odd] = [*order * 3, *turned]
    (finding,) = found(orders, [2, 2, 1, 1, 1])
    assert finding.culprits == [odd]


def test_a_new_phase_accuses_nobody() -> None:
    """Behind its rounds one of two sends what it never sent, and the other one is in its rounds."""
    beat = [(WORLD, SEND, 20, 1), (WORLD, RECV, 21, 1)]
    answer = [(WORLD, RECV, 30, 0), (WORLD, SEND, 31, 0)]
    orders = [[*beat * 4, (WORLD, RECV, 50, 1)], [*answer * 4, answer[0]]]
    findings = found(orders, [1, 1])
    assert all(one.culprits != [0] for one in findings)


@pytest.mark.parametrize("queued", [True, False], ids=["runs_ahead", "blocks"])
@pytest.mark.parametrize("odd", [2, 3])
def test_a_worker_that_passes_over_what_the_others_are_in_is_named(odd: int, queued: bool) -> None:
    """The server waits for worker 1, which is in the workers' all_reduce, as it has always been."""
    workers = range(1, 5)
    serve = [*((WORLD, RECV, 37, one) for one in workers)]
    serve += [(WORLD, SEND, 42, one) for one in workers]
    work: list[Called] = [(WORLD, SEND, 47, 0), (WORLD, RECV, 48, 0), (PAIR, "all_reduce", 49, 64)]
    orders = [[*serve * 4, serve[0]]] + [work * 4] * 4
    orders[odd] = [*work * 3, *work[:2], *(work if queued else work[:1])]
    opened = [1, 1, 1, 1, 1]
    opened[odd] = 3 if queued else 1
    members = {WORLD: range(5), PAIR: workers}
    dumps = [dump_of(rank, calls, opened[rank], members) for rank, calls in enumerate(orders)]
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [odd])
    assert ("each of its own rounds" in finding.summary) is queued  # else peers' orders tell


@pytest.mark.parametrize("rounds", [3, 6])
def test_who_receives_once_too_often_is_named_and_not_who_is_through(rounds: int) -> None:
    """Rank 0 has sent all; rank 1 took two for one round, and waits for one more."""
    sends = [(WORLD, SEND, 20, 1)] * (rounds + 2)
    relay = [(WORLD, RECV, 30, 0), (WORLD, SEND, 31, 2)]
    takes = [(WORLD, RECV, 40, 1)] * (rounds + 2)
    orders = [sends, [*relay * rounds, relay[0], *relay, *relay], takes]
    (finding,) = found(orders, [0, 2, 1])
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [1])


def test_who_takes_from_another_one_is_named_and_not_who_is_through() -> None:
    """Of four in a ring rank 3 takes from rank 1, which has come to its end."""
    size, rounds = 4, 3
    orders: list[list[Called]] = []
    for rank in range(size):
        turn = [(WORLD, SEND, 20, (rank + 1) % size), (WORLD, RECV, 20, (rank - 1) % size)]
        orders.append(turn * (rounds + 1))
    orders[3][-1] = (WORLD, RECV, 20, 1)
    (finding,) = found(orders, [2, 0, 0, 2], pair=size)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [3])


@pytest.mark.parametrize("line", [24, 34], ids=["its_line", "another_schedule_s_line"])
def test_a_stage_that_takes_another_schedule_is_named(line: int) -> None:
    """It sends on as in each round, from a line of its own maybe, and then awaits the answer."""
    taken, on = (WORLD, RECV, 14, 0), (WORLD, SEND, 24, 2)
    answered, back = (WORLD, RECV, 43, 2), (WORLD, SEND, 46, 0)
    middle = [taken, on, taken, on, answered, back, answered, back]
    first = [(WORLD, SEND, 24, 1)] * 2 + [(WORLD, RECV, 43, 1)] * 2
    last = [(WORLD, RECV, 14, 1)] * 2 + [(WORLD, SEND, 46, 1)] * 2
    orders = [
        [*first * 4, *first[:2]],
        [*middle * 4, taken, (WORLD, SEND, line, 2), answered],
        [*last * 4, *last[:2]],
    ]
    (finding,) = found(orders, [1, 1, 1])
    assert finding.culprits == [1]
