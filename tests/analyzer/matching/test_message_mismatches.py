"""Messages whose two ends have tensors of different sizes or dtypes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Inputs, Status, Verdict

Sent = tuple[int, str]
USUAL: Sent = (4, "Float")


def messages(op: str, tensors: Sequence[Sent], finished: int) -> list[Row]:
    return [
        Row(
            op, 0, done=number < finished, inputs=[[numel]], outputs=[[numel]], dtype=dtype,
            p2p_seq=number + 1,
        )
        for number, (numel, dtype) in enumerate(tensors)
    ]  # fmt: skip


def verdict(
    sent: Sequence[Sent], taken: Sequence[Sent], *, sends: int = 99, takes: int = 99
) -> Verdict:
    """Rank 0 sends to rank 1; each finishes so many; rank 2 waits for all in an all_reduce."""
    hung = sends < len(sent) or takes < len(taken)
    reduction = [Row("all_reduce", 1, done=not hung)]
    rows = [
        [*messages("send 0->1", sent, sends), *reduction],
        [*messages("recv 1<-0", taken, takes), *reduction],
        reduction,
    ]
    dumps = {r: columns(r, mine, members=world(3)) for r, mine in enumerate(rows)}
    return conclude(
        CaseFacts(
            graph=build_wait_for_graph(dumps.values()),
            ranks={rank: RankView(rank=rank, has_dump=True) for rank in dumps},
            dumps=dumps,
            inputs=Inputs(ranks=3),
        )
    )


@pytest.mark.parametrize(
    ("odd", "cause"), [((5, "Float"), Cause.SIZE_MISMATCH), ((4, "Half"), Cause.DTYPE_MISMATCH)]
)
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("side", [0, 1])
def test_of_the_two_ends_nothing_tells_which_is_wrong(
    odd: Sent, cause: Cause, eager: bool, side: int
) -> None:
    wrong, usual = [USUAL, odd], [USUAL, USUAL]
    found = verdict(*((wrong, usual) if side == 0 else (usual, wrong)), sends=2 if eager else 1,
                    takes=1)  # fmt: skip
    assert (found.status, found.cause, found.culprits) == (Status.HUNG, cause, [0, 1])
    assert found.victims == [2]


@pytest.mark.parametrize("side", [0, 1])
def test_the_end_that_is_unlike_all_messages_around(side: int) -> None:
    wrong, usual = [USUAL, (4, "Half"), USUAL, USUAL], [USUAL] * 4
    found = verdict(*((wrong, usual) if side == 0 else (usual, wrong)), sends=1, takes=1)
    assert (found.cause, found.culprits) == (Cause.DTYPE_MISMATCH, [side])


def test_a_message_left_out_shifts_the_rest_and_accuses_nobody_alone() -> None:
    a, b = (4, "Float"), (8, "Float")
    found = verdict([a, b, b, a, b], [a, b, a, b, a], sends=2, takes=2)
    assert (found.cause, found.culprits) == (Cause.SIZE_MISMATCH, [0, 1])


def test_messages_behind_one_that_lacks_are_no_matter_of_sizes() -> None:
    """Rank 0 has left out the header of the second round."""
    header = (1, "Float")
    taken = [header, USUAL, USUAL] * 2
    found = verdict([*taken[:3], USUAL, USUAL], taken, sends=3, takes=3)
    assert (found.status, found.cause) == (Status.HUNG, Cause.P2P_UNMATCHED)


@pytest.mark.parametrize("through", [True, False, None])
def test_before_both_are_through_one_may_have_left_a_header_out(through: bool | None) -> None:
    """Rank 1 takes another message first, or gives another size there: the rest is alike.

    A collective that both have issued before (None) tells nothing of what comes behind.
    """
    reduction = [Row("all_reduce", 1, done=False)]
    before, behind = reduction if through is None else [], reduction if through else []
    rows = [
        [*before, *messages("send 0->1", [USUAL] * 3, 0), *behind],
        [*before, *messages("recv 1<-0", [(1, "Float"), USUAL, USUAL], 0), *behind],
        reduction,
    ]
    dumps = {r: columns(r, mine, members=world(3)) for r, mine in enumerate(rows)}
    (found,) = build_wait_for_graph(dumps.values()).mismatched_messages
    assert found.deviating == (1 if through else None)


@pytest.mark.parametrize("taken", [(5, "Float"), (4, "Half")])
def test_messages_that_end_all_the_same_are_corrupt(taken: Sent) -> None:
    found = verdict([USUAL] * 4, [USUAL, taken, USUAL, USUAL])
    assert (found.status, found.culprits) == (Status.CORRUPT, [1])
    assert found.location is None or found.location.rank == 1


@pytest.mark.parametrize(
    ("sent", "taken"), [((4, "Float"), (16, "Byte")), ((8, "Half"), (4, "Float"))]
)
def test_bytes_may_be_sent_as_one_type_and_taken_as_another(sent: Sent, taken: Sent) -> None:
    found = verdict([sent], [taken])
    assert found.cause is None and not found.culprits


def test_a_hang_elsewhere_is_told_beside_it() -> None:
    """Rank 1 finished what does not fit, and stays away from the all_reduce."""
    rows = [
        [*messages("send 0->1", [USUAL, (5, "Float"), USUAL], 3), Row("all_reduce", 1, done=False)],
        messages("recv 1<-0", [USUAL] * 3, 3),
        [Row("all_reduce", 1, done=False)],
    ]
    dumps = {r: columns(r, mine, members=world(3)) for r, mine in enumerate(rows)}
    found = conclude(
        CaseFacts(
            graph=build_wait_for_graph(dumps.values()),
            ranks={rank: RankView(rank=rank, has_dump=True) for rank in dumps},
            dumps=dumps,
            inputs=Inputs(ranks=3),
        )
    )
    assert (found.status, found.cause, found.culprits) == (Status.HUNG, Cause.MISSING_RANK, [1])
    assert [(f.status, f.culprits) for f in found.findings[1:]] == [(Status.CORRUPT, [0])]


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize(
    ("odd", "cause"), [((5, "Float"), Cause.SIZE_MISMATCH), ((4, "Half"), Cause.DTYPE_MISMATCH)]
)
@pytest.mark.parametrize("side", [0, 1])
def test_the_first_open_messages_meet_where_a_ring_lost_the_earlier_ones(
    lost: int, odd: Sent, cause: Cause, side: int
) -> None:
    wrong, usual = [*[USUAL] * 4, odd], [USUAL] * 5
    sent, taken = (wrong, usual) if side == 0 else (usual, wrong)
    rows = [messages("send 0->1", sent, 4), messages("recv 1<-0", taken, 4)[lost:]]
    dumps = {
        rank: columns(rank, mine, members=world(2), first_record=lost if rank else 0)
        for rank, mine in enumerate(rows)
    }
    (found,) = build_wait_for_graph(dumps.values()).mismatched_messages
    assert (found.sent.rank, found.taken.rank, found.deviating) == (0, 1, None)
    assert found.difference.value == cause.value.removesuffix("_mismatch")
    assert not found.finished


@pytest.mark.parametrize("lost", [1, 2])
def test_a_send_that_ended_meets_a_receive_however_much_of_both_rings_is_lost(lost: int) -> None:
    """Rank 0 sent more than rank 1 can have taken, and one of the sends is like no other."""
    sent = [USUAL, USUAL, (4, "Half"), *[USUAL] * 4]
    rows = [messages("send 0->1", sent, 99)[lost:], messages("recv 1<-0", [USUAL] * 4, 2)[1:]]
    rows[0].append(Row("all_reduce", 1, done=False, extra={"op_id": 8}))
    dumps = {
        rank: columns(rank, mine, members=world(2), first_record=1 if rank else lost)
        for rank, mine in enumerate(rows)
    }
    graph = build_wait_for_graph(dumps.values())
    (found,) = graph.mismatched_messages
    assert (found.sent.rank, found.deviating, found.finished) == (0, 0, False)
    assert not (graph.cycles or graph.unmatched)


def receives(peers: Sequence[tuple[str, int]]) -> list[Row]:
    """Receives with their sizes, of which the first two have ended."""
    return [
        Row(op, 0, done=at < 2, inputs=[[numel]], outputs=[[numel]], p2p_seq=at + 1)
        for at, (op, numel) in enumerate(peers)
    ]


@pytest.mark.parametrize("eager", [True, False])
def test_a_size_that_another_rank_waits_for_went_to_the_wrong_peer(eager: bool) -> None:
    """Rank 0 takes 4 from rank 1 and 8 from rank 2, and then both from rank 1."""
    taken = [("recv 0<-1", 4), ("recv 0<-2", 8), ("recv 0<-1", 8), ("recv 0<-1", 4)]
    rows = [
        receives(taken),
        messages("send 1->0", [USUAL, USUAL], 1),
        messages("send 2->0", [(8, "Float")] * 2, 2 if eager else 1),
    ]
    dumps = {r: columns(r, mine, members=world(3)) for r, mine in enumerate(rows)}
    graph = build_wait_for_graph(dumps.values())
    (found,) = graph.unmatched
    assert (found.deviating, graph.mismatched_messages) == ((0,), [])


def test_a_wrong_size_that_nobody_else_waits_for_is_no_wrong_peer() -> None:
    """Rank 2 sends what rank 0, held up by rank 1's size, has yet to take."""
    rows = [
        receives([("recv 0<-1", 4), ("recv 0<-2", 4), ("recv 0<-1", 4)]),
        messages("send 1->0", [USUAL, (8, "Float")], 1),
        messages("send 2->0", [USUAL] * 2, 1),
    ]
    dumps = {r: columns(r, mine, members=world(3)) for r, mine in enumerate(rows)}
    graph = build_wait_for_graph(dumps.values())
    (found,) = graph.mismatched_messages
    assert {found.sent.rank, found.taken.rank} == {0, 1} and not graph.unmatched


def test_a_message_that_its_receiver_lacks_went_to_one_who_never_takes_any() -> None:
    """Rank 0 sends a header and its tensor to rank 1, and then the next tensor to rank 2."""
    sizes = [1, 8, 1, 9, 1]
    peers = [1, 1, 1, 2, 1]
    rows = [
        [
            Row(f"send 0->{peer}", 0, done=at < 3, inputs=[[numel]], outputs=[[numel]],
                p2p_seq=at + 1)
            for at, (peer, numel) in enumerate(zip(peers, sizes, strict=True))
        ],
        messages("recv 1<-0", [(numel, "Float") for numel in sizes[:4]], 3),
        [Row("all_reduce", 1, done=False)],
    ]  # fmt: skip
    dumps = {r: columns(r, mine, members=world(3)) for r, mine in enumerate(rows)}
    graph = build_wait_for_graph(dumps.values())
    (found,) = graph.unmatched
    assert (found.deviating, found.call.rank, graph.mismatched_messages) == ((0,), 1, [])


@pytest.mark.parametrize("chained", [False, True])
def test_sizes_of_pairs_apart_may_be_one_mistake_of_all_and_those_of_a_chain_are_a_shift(
    chained: bool,
) -> None:
    """Of four in a ring whose sends meet receives of other rounds nobody's size is wrong."""
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)] if chained else [(0, 1), (2, 3)]
    rows: list[list[Row]] = [[] for _ in range(4)]
    numbers = [0] * 4
    for number, (a, b) in enumerate(pairs):
        for rank, op, numel in ((a, f"send {a}->{b}", 8 + number), (b, f"recv {b}<-{a}", 4)):
            numbers[rank] += 1
            size = [[numel]]
            rows[rank].append(
                Row(op, 0, done=False, inputs=size, outputs=size, p2p_seq=numbers[rank])
            )
    dumps = [columns(rank, mine, members=world(4)) for rank, mine in enumerate(rows)]
    found = [{m.sent.rank, m.taken.rank} for m in build_wait_for_graph(dumps).mismatched_messages]
    assert found == ([] if chained else [{0, 1}, {2, 3}])
