"""Receives from any source: who alone could still serve them, and knots, in which nobody can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.verdict import Cause, Finding

Halves = list[tuple[str, bool]]
"""Operations as torch writes them, and whether they have finished."""


def graph_of(ranks: Mapping[int, Halves], group: Sequence[int] = ()) -> WaitForGraph:
    members = {"0": list(ranks), **({"1": list(group)} if group else {})}
    dumps = []
    for rank, halves in ranks.items():
        rows: list[Row] = []
        for op, done in halves:
            name = "1" if group and op.startswith(("send", "recv")) else "0"
            before = [row for row in rows if row.group == name]
            messages = sum(row.p2p_seq > 0 for row in before)
            p2p = op.startswith(("send", "recv"))
            number = len(before) - messages + (not p2p)
            rows.append(Row(op, number, name, done, p2p_seq=messages + 1 if p2p else 0))
        mine = {name: ranks for name, ranks in members.items() if rank in ranks}
        dumps.append(columns(rank, rows, members=mine, backend="gloo"))
        dumps[-1].sends_known = True
    return build_wait_for_graph(dumps)


def only_finding(graph: WaitForGraph) -> Finding:
    (finding,) = synchronization_findings(graph)
    return finding


def takes(rank: int, count: int, *, held: bool) -> Halves:
    """Receives from any source, the last of them still open where ``held``."""
    return [(f"recv {rank}<--1", not held or i < count - 1) for i in range(count)]


@pytest.mark.parametrize("size", [3, 4, 6])
@pytest.mark.parametrize("silent", [1, 2])
def test_the_only_worker_that_waits_for_nobody_is_who_has_yet_to_send(
    size: int, silent: int
) -> None:
    """All others wait for the answer of the one who takes from anybody."""
    ranks: dict[int, Halves] = {0: takes(0, size - 1, held=True)}
    for rank in range(1, size):
        served = [(f"send {rank}->0", True), (f"recv {rank}<-0", False)]
        ranks[rank] = [] if rank == silent else served
    ranks[silent] = [("all_reduce", True)]
    for rank in set(ranks) - {silent}:
        ranks[rank] = [("all_reduce", True), *ranks[rank]]
    finding = only_finding(graph_of(ranks))
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [silent])
    assert finding.victims == sorted(set(ranks) - {silent})


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_that_take_from_anybody_are_one_knot(size: int) -> None:
    begin: Halves = [("barrier", True)]
    finding = only_finding(
        graph_of({rank: [*begin, *takes(rank, 1, held=True)] for rank in range(size)})
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_DEADLOCK, list(range(size)))


def test_a_knot_has_a_way_out_through_a_rank_that_is_free() -> None:
    ranks: dict[int, Halves] = {
        rank: [("barrier", True), *takes(rank, 1, held=True)] for rank in range(3)
    }
    ranks[3] = [("barrier", True)]
    finding = only_finding(graph_of(ranks))
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [3])


def test_of_two_that_may_still_send_neither_is_named() -> None:
    ranks: dict[int, Halves] = {
        0: [("barrier", True), *takes(0, 1, held=True)],
        1: [("barrier", True)],
        2: [("barrier", True)],
    }
    graph = graph_of(ranks)
    assert synchronization_findings(graph) == []


def test_who_is_not_in_the_group_of_the_receive_cannot_serve_it() -> None:
    """Rank 0 is free, too, but no member; ranks 1 and 2 wait for 3."""
    ranks: dict[int, Halves] = {
        0: [("barrier", True), ("barrier", False)],
        1: [("barrier", True), ("recv 0<--1", False)],
        2: [("barrier", True), ("send 1->0", True), ("barrier", False)],
        3: [("barrier", True)],
    }
    finding = only_finding(graph_of(ranks, group=[1, 2, 3]))
    assert finding.culprits == [3]


def test_a_message_that_was_taken_from_anybody_counts_for_no_peer() -> None:
    """Rank 0 took rank 1's first message by chance, and now names it: rank 1 is who stopped."""
    ranks: dict[int, Halves] = {
        0: [*takes(0, 2, held=False), ("recv 0<-1", False)],
        1: [("send 1->0", True)],
        2: [("send 2->0", True), ("barrier", False)],
    }
    finding = only_finding(graph_of(ranks))
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [1])


def test_a_message_and_the_receive_from_anybody_that_it_meets_wait_for_nobody() -> None:
    ranks: dict[int, Halves] = {
        0: takes(0, 2, held=True),
        1: [("send 1->0", True), ("barrier", False)],
        2: [("send 2->0", False)],
    }
    graph = graph_of(ranks)
    assert (graph.cycles, graph.unmatched, graph.sinks) == ([], [], [])


def round_of(sent: Sequence[int], taken: int, *, done: bool) -> dict[int, Halves]:
    """Workers that send so many each to rank 0, which takes them from anybody; then all reduce."""
    ranks: dict[int, Halves] = {
        rank: [*[(f"send {rank}->0", True)] * count, ("all_reduce", done)]
        for rank, count in enumerate(sent, start=1)
    }
    ranks[0] = [*takes(0, taken, held=not done), *([("all_reduce", True)] if done else [])]
    return dict(sorted(ranks.items()))


@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize("size", [4, 5])
def test_the_worker_that_sent_one_less_than_the_others_left_it_out(rounds: int, size: int) -> None:
    sent = [2] * (size - 1)
    whole = round_of(sent, sum(sent), done=True)
    sent[1] -= 1
    last = round_of(sent, sum(sent) + 1, done=False)
    finding = only_finding(
        graph_of({rank: [*whole[rank] * rounds, *last[rank]] for rank in range(size)})
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [2])
    assert (finding.confidence > 0.6) is (rounds > 0)


@pytest.mark.parametrize("size", [3, 4])
def test_who_takes_one_more_than_in_each_round_before_took_too_many(size: int) -> None:
    sent = [2] * (size - 1)
    whole = round_of(sent, sum(sent), done=True)
    last = round_of(sent, sum(sent) + 1, done=False)
    finding = only_finding(
        graph_of({rank: [*whole[rank] * 3, *last[rank]] for rank in range(size)})
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0])


@pytest.mark.parametrize("sent", [(3, 2), (10, 9)])
def test_of_two_workers_the_one_that_sent_less_lacks_one(sent: tuple[int, int]) -> None:
    """If the receives are as many as if both had sent alike; else either may lack some."""
    finding = only_finding(graph_of(round_of(sent, 2 * sent[0], done=False)))
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [2])
    assert finding.confidence <= 0.6
    assert synchronization_findings(graph_of(round_of(sent, 2 * sent[0] + 1, done=False))) == []


def test_without_rounds_one_receive_more_than_there_are_messages_accuses_nobody() -> None:
    graph = graph_of(round_of([1, 1], 3, done=False))
    assert synchronization_findings(graph) == []


def served_round(size: int, *, ask: Sequence[int], answer: Sequence[int]) -> dict[int, Halves]:
    """Workers of ``ask`` send to rank 0, which takes that, and answers those of ``answer``."""
    ranks: dict[int, Halves] = {0: takes(0, len(ask), held=False)}
    ranks[0] = [*ranks[0], *[(f"send 0->{rank}", True) for rank in answer]]
    for rank in range(1, size):
        sent = [(f"send {rank}->0", True)] if rank in ask else []
        ranks[rank] = [*sent, (f"recv {rank}<-0", rank in answer)]
    return ranks


@pytest.mark.parametrize("rounds", [0, 4])
@pytest.mark.parametrize("size", [4, 6])
def test_the_worker_that_waits_for_the_answer_to_what_it_never_asked(
    size: int, rounds: int
) -> None:
    workers = list(range(1, size))
    whole = served_round(size, ask=workers, answer=workers)
    last = served_round(size, ask=[one for one in workers if one != 2], answer=[])
    last[0] = [*last[0], ("recv 0<--1", False)]
    finding = only_finding(
        graph_of({rank: [*whole[rank] * rounds, *last[rank]] for rank in range(size)})
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [2])


def test_whom_nobody_answers_has_asked_as_all_others_have() -> None:
    """Rank 0 forgot rank 2's answer, which stays one round behind: 2 owes nothing."""
    whole = served_round(4, ask=[1, 2, 3], answer=[1, 2, 3])
    last = served_round(4, ask=[1, 2, 3], answer=[1, 3])
    for rank in (1, 3):
        last[rank] = [*last[rank], (f"send {rank}->0", True), (f"recv {rank}<-0", False)]
    last[0] = [*last[0], *takes(0, 3, held=True)]
    graph = graph_of({rank: [*whole[rank] * 4, *last[rank]] for rank in range(4)})
    assert synchronization_findings(graph) == []


def served(rank: int, pushes: int, *, held: bool) -> Halves:
    """Sends to rank 0, each with its answer but for the last one where it is ``held``."""
    rounds = [(f"send {rank}->0", True), (f"recv {rank}<-0", True)] * (pushes - held)
    return [*rounds, (f"send {rank}->0", False)] if held else [*rounds, ("barrier", False)]


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_who_sent_more_than_its_share_left_another_one_without_a_taker(workers: int) -> None:
    """Of two it may be the one that takes who took a round too few: a third tells."""
    ranks: dict[int, Halves] = {
        0: [*takes(0, 4 * workers, held=False), ("barrier", False)],
        1: served(1, 5, held=False),
        workers: served(workers, 4, held=True),
    }
    ranks |= {rank: served(rank, 4, held=False) for rank in range(2, workers)}
    finding = only_finding(graph_of(ranks))
    assert finding.cause is Cause.P2P_UNMATCHED
    assert finding.culprits == ([0, 1] if workers == 2 else [1])
    assert "Rank 1 sent one message more than its share to rank 0" in finding.summary


def test_who_takes_no_equal_shares_tells_of_no_sender() -> None:
    ranks: dict[int, Halves] = {
        0: [*takes(0, 9, held=False), ("barrier", False)],
        1: served(1, 6, held=False),
        2: served(2, 4, held=True),
    }
    finding = only_finding(graph_of(ranks))
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 2])
