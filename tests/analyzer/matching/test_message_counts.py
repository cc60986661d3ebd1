"""Messages without another half: one too many, or one too few, by rounds and by the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

Round = Mapping[int, Sequence[str]]
"""Sends and receives of each rank between two reductions of all."""


def hang(size: int, rounds: Sequence[Round], *, backend: str = "nccl") -> list[Finding]:
    """Findings on ranks that do the rounds one after the other, as far as they come.

    What a rank waits in ends what it does: an exchange in which a half is missing, or the
    reduction that somebody else has not come to.
    """
    rows: dict[int, list[Row]] = {rank: [] for rank in range(size)}
    counts = dict.fromkeys(range(size), 0)

    def add(rank: int, op: str, number: int, done: bool) -> None:
        p2p = op != "all_reduce"
        counts[rank] += p2p
        seq = number if p2p else number + 1
        rows[rank].append(Row(op, seq, done=done, p2p_seq=counts[rank] if p2p else 0))

    for number, one in enumerate(rounds):
        left = {rank: list(one.get(rank, ())) for rank in range(size)}
        while True:
            pair = next(
                (
                    (rank, other)
                    for rank, ops in left.items()
                    if ops and ops[0].startswith("send")
                    for other in range(size)
                    if left[other] and left[other][0] == _other_half(ops[0])
                ),
                None,
            )
            if pair is None:
                break
            for rank in pair:
                add(rank, left[rank].pop(0), number, True)
        done = not any(left.values())
        for rank, ops in left.items():
            add(rank, ops[0] if ops else "all_reduce", number, done)
        if not done:
            break
    return synchronization_findings(
        build_wait_for_graph(
            [
                columns(rank, mine, members={"0": range(size)}, backend=backend)
                for rank, mine in rows.items()
            ]
        )
    )


def _other_half(send: str) -> str:
    src, dst = send.removeprefix("send ").split("->")
    return f"recv {dst}<-{src}"


def pipeline(stages: int, microbatches: Mapping[int, int], usual: int) -> Round:
    return {
        stage: [
            op
            for _ in range(microbatches.get(stage, usual))
            for op in (
                *([f"recv {stage}<-{stage - 1}"] if stage else []),
                *([f"send {stage}->{stage + 1}"] if stage < stages - 1 else []),
            )
        ]
        for stage in range(stages)
    }


def pairs(size: int, counts: Mapping[int, int], usual: int) -> Round:
    return {
        rank: [f"recv {rank}<-{rank - 1}" if rank % 2 else f"send {rank}->{rank + 1}"]
        * counts.get(rank, usual)
        for rank in range(size)
    }


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize(("stages", "stage"), [(4, 0), (4, 1), (4, 2), (4, 3), (6, 3)])
def test_a_stage_with_one_microbatch_less(
    stages: int, stage: int, rounds: int, backend: str
) -> None:
    whole = pipeline(stages, {}, 4)
    (finding,) = hang(stages, [*[whole] * rounds, pipeline(stages, {stage: 3}, 4)], backend=backend)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [stage])


@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize(("rank", "count"), [(3, 6), (2, 8), (5, 6), (0, 8)])
def test_of_pairs_that_exchange_alike_the_one_that_counts_otherwise(
    rank: int, count: int, rounds: int
) -> None:
    whole = pairs(6, {}, 7)
    (finding,) = hang(6, [*[whole] * rounds, pairs(6, {rank: count}, 7)])
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [rank])


@pytest.mark.parametrize("usual", [1, 200])
@pytest.mark.parametrize(("rank", "more"), [(0, 1), (1, -1)])
def test_of_two_alone_the_one_that_changed_its_habit(usual: int, rank: int, more: int) -> None:
    """A send too many, or a receive too few: the other side does as often as ever."""
    rounds = [*[pairs(2, {}, usual)] * 3, pairs(2, {rank: usual + more}, usual)]
    (finding,) = hang(2, rounds)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [rank])


def test_of_two_alone_without_rounds_nothing_tells() -> None:
    (finding,) = hang(2, [pairs(2, {1: 3}, 4)])
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert finding.confidence <= 0.5


def test_what_both_never_did_before_is_no_habit_of_either() -> None:
    new = {0: ["send 0->1", "send 0->2"], 1: ["recv 1<-0"], 2: []}
    old = {0: ["send 0->1"], 1: ["recv 1<-0"], 2: []}
    (finding,) = hang(3, [*[old] * 3, new])
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 2])


def test_ranks_that_do_otherwise_by_right_are_no_measure() -> None:
    """Stage 0 sends its embedding to the last stage, which nobody else does at all."""
    one = {**pipeline(4, {}, 4)}
    one[0] = [*one[0], "send 0->3"]
    (finding,) = hang(4, [one])
    assert finding.culprits != [3]
    assert finding.confidence <= 0.5


def past(rounds: Sequence[tuple[int, int]], *, owed: int = 0) -> list[Finding]:
    """Rank 0 sends, rank 1 takes, so many each before each reduction; all reductions finish.

    ``owed``: so many that rank 1 used to take only after the reduction.
    """
    rows: dict[int, list[Row]] = {0: [], 1: []}
    taken = -owed
    most = sum(takes for _, takes in rounds) - owed
    sent = 0
    for seq, (sends, takes) in enumerate(rounds, start=1):
        for _ in range(sends):
            sent += 1
            rows[0].append(Row("send 0->1", seq - 1, done=sent <= most, p2p_seq=sent))
        for _ in range(takes):
            taken += 1
            if taken > 0:
                rows[1].append(Row("recv 1<-0", seq - 1, p2p_seq=taken))
        for mine in rows.values():
            mine.append(Row("all_reduce", seq))
    return synchronization_findings(
        build_wait_for_graph([columns(r, rows[r], members={"0": range(2)}) for r in rows])
    )


def test_a_peer_that_is_past_a_message_is_not_late() -> None:
    """Rank 0 sent one too many, or rank 1 took one too few: both ended what follows."""
    (finding,) = past([(4, 3)])
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert finding.confidence <= 0.5


@pytest.mark.parametrize(("last", "culprit"), [((5, 4), 0), ((4, 3), 1)])
def test_of_two_that_are_past_a_message_the_one_that_left_its_rounds(
    last: tuple[int, int], culprit: int
) -> None:
    (finding,) = past([(4, 4), (4, 4), (4, 4), last])
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [culprit])


def test_a_peer_that_always_took_messages_after_the_reduction_may_be_late() -> None:
    (finding,) = past([(4, 4), (4, 4), (4, 4)], owed=1)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [1])


def test_the_last_step_of_a_loop_has_fewer_than_rounds_that_ended_otherwise() -> None:
    """Two exchanges to each reduction, one more and a call behind the loop; rank 1 makes two."""
    dumps = []
    for rank in range(5):
        beside = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < 5]
        turns = "xxrxxrx" + ("x" if rank == 1 else "g")
        counts = {"r": 0, "x": 0}
        rows: list[Row] = []
        for at, turn in enumerate(turns):
            done = at < len(turns) - 1
            if turn != "x":
                counts["r"] += 1
                op = "all_reduce" if turn == "r" else "_all_gather_base"
                rows.append(Row(op, counts["r"], "0", done, inputs=((1 if turn == "r" else 8,),)))
                continue
            for peer in beside:
                words = [f"send {rank}->{peer}", f"recv {rank}<-{peer}"]
                for word in words if rank < peer else words[::-1]:
                    counts["x"] += 1
                    rows.append(Row(word, 0, "1", done, p2p_seq=counts["x"]))
        if rank == 1:
            rows = rows[:-3]  # It waits in the first half that it has too many.
        members = dict.fromkeys(("0", "1"), range(5))
        dumps.append(columns(rank, rows, members=members))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [1])
