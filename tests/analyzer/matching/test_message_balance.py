"""Messages of each two ranks, counted up to the collectives that both have issued."""

from __future__ import annotations

from collections import Counter

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding


def rows_of(words: str) -> list[Row]:
    """Messages as ``send 0->1``, ``/`` for the round's collective; ``!`` marks what is open."""
    rows: list[Row] = []
    messages = rounds = 0
    for word in words.split(", "):
        op, done = word.rstrip("!"), not word.endswith("!")
        if op == "/":
            rounds += 1
            rows.append(Row("all_reduce", rounds, "1", done=done))
        else:
            messages += 1
            rows.append(Row(op, 0, "0", done=done, p2p_seq=messages))
    return rows


def findings_of(*ranks: str) -> list[Finding]:
    size = len(ranks)
    members = {"0": range(size), "1": range(size)}
    return synchronization_findings(
        build_wait_for_graph(
            columns(rank, rows_of(words), members=members) for rank, words in enumerate(ranks)
        )
    )


def test_the_end_of_both_unequal_channels_took_the_wrong_peer() -> None:
    # Rank 2 sent its second message to 0 instead of 1; all hosts ran on to the collective.
    (finding,) = findings_of(
        "send 0->1, send 0->1, recv 0<-1!, recv 0<-1!, /!",
        "recv 1<-0, recv 1<-0, recv 1<-2!, send 1->0!, recv 1<-2!, send 1->0!, /!",
        "send 2->0!, send 2->1!, /!",
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [2])
    assert finding.victims == [0, 1]


def test_of_a_message_left_out_both_ends_are_named_and_nobody_else() -> None:
    (finding,) = findings_of(
        "send 0->1, send 0->1, recv 0<-1!, recv 0<-1!, /!",
        "recv 1<-0, recv 1<-0, recv 1<-2, send 1->0!, recv 1<-2!, send 1->0!, /!",
        "send 2->1, /!",
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [1, 2])
    assert finding.confidence == 0.5


@pytest.mark.parametrize("left", [[0], [2], [0, 2]])
def test_whose_messages_are_as_many_with_each_of_its_peers_left_none_out(left: list[int]) -> None:
    """Two ends of a pipeline, each of whom may have taken, or sent, one microbatch less."""
    taken, sent = ("" if rank not in left else "!" for rank in (2, 0))
    back = ["recv 1<-2, send 1->0"] * 2 + [f"recv 1<-2{taken}, send 1->0{taken or sent}"]
    ends = [["recv 0<-1", "recv 0<-1", f"recv 0<-1{taken}"], ["send 2->1"] * 3]
    if 0 in left:
        ends[0].pop()
    if 2 in left:
        ends[1].pop()
    found = findings_of(
        ", ".join(["send 0->1"] * 3 + ends[0] + ["/!"]),
        ", ".join(["recv 1<-0, send 1->2"] * 3 + back + ["/!"]),
        ", ".join(["recv 2<-1"] * 3 + ends[1] + ["/!"]),
    )
    assert {one.cause for one in found} == {Cause.P2P_UNMATCHED}
    assert sorted(rank for one in found for rank in one.culprits) == left


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_who_has_left_out_a_whole_exchange_is_as_even_as_before(rounds: int) -> None:
    """Rank 0 deals four items to rank 1 and three to each of two others; 2 stops one early."""
    dealt = (("1", 4), ("2", 3), ("3", 3))
    master = [f"send 0->{w}, recv 0<-{w}" for w, items in dealt for _ in range(items)]
    last = list(master)
    last[6] = "send 0->2!, recv 0<-2!"
    workers = [[f"recv {w}<-0, send {w}->0"] * items for w, items in dealt]
    found = findings_of(
        ", ".join([*[*master, "/"] * (rounds - 1), *last, "/!"]),
        *(
            ", ".join([*[*mine, "/"] * (rounds - 1), *(mine[1:] if at == 1 else mine), "/!"])
            for at, mine in enumerate(workers)
        ),
    )
    (finding,) = found
    assert 2 in finding.culprits
    assert finding.culprits == [2] or finding.confidence == 0.5


@pytest.mark.parametrize("size", [2, 3])
def test_the_last_stage_may_have_left_out_the_loss_that_makes_it_uneven(size: int) -> None:
    last = size - 1
    stages = [
        [f"recv {one}<-{one - 1}, send {one}->{one + 1}"] * 2
        + [f"recv {one}<-{one + 1}, send {one}->{one - 1}"] * 2
        for one in range(1, last)
    ]
    (finding,) = findings_of(
        ", ".join([*["send 0->1"] * 2, *["recv 0<-1"] * 2, f"recv 0<-{last}!", "/!"]),
        *(", ".join([*stage, "/!"]) for stage in stages),
        ", ".join([f"recv {last}<-{last - 1}"] * 2 + [f"send {last}->{last - 1}"] * 2 + ["/!"]),
    )
    assert (finding.culprits, finding.confidence) == ([0, last], 0.5)


def test_who_has_one_peer_alone_is_not_odd_by_what_that_one_did() -> None:
    # The middle stage is a round further when it comes to the collective.
    first, last = "send 0->1, recv 0<-1", "recv 2<-1, send 2->1"
    round_ = "recv 1<-0, send 1->2, recv 1<-2, send 1->0"
    further = "recv 1<-0!, send 1->2!, recv 1<-2!, send 1->0!"
    (finding,) = findings_of(
        f"{first}, /, {first}, /!",
        f"{round_}, /, {round_}, {further}, /!",
        f"{last}, /, {last}, /!",
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [1])


def test_the_end_that_left_its_own_rounds_is_named_alone() -> None:
    rounds = ("send 0->1, /, " * 3, "recv 1<-0, /, " * 3)
    (finding,) = findings_of(rounds[0] + "/!", rounds[1] + "recv 1<-0!, /!")
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0])


def test_messages_that_cross_each_rounds_collective_are_no_fault() -> None:
    # Received for the next round before the collective, sent after it; rank 2 is late.
    found = findings_of(
        "recv 0<-1, /, recv 0<-1, /, recv 0<-1!, /!",
        "/, send 1->0, /, send 1->0, /!",
        "/, /",
    )
    assert [finding.culprits for finding in found] == [[2]]


def test_messages_on_two_groups_miss_each_other() -> None:
    members = {"0": range(2), "1": range(2), "2": range(2)}
    last = Row("all_reduce", 1, "2", done=False)
    sent = [Row("send 0->1", 0, "0", p2p_seq=1, done=False), last]
    taken = [Row("recv 1<-0", 0, "1", p2p_seq=1, done=False), last]
    graph = build_wait_for_graph(
        columns(rank, rows, members=members) for rank, rows in enumerate((sent, taken))
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])


def test_equal_counts_are_no_matter_of_messages() -> None:
    assert not findings_of("send 0->1, recv 0<-1!, /!", "recv 1<-0, send 1->0!, /!", "/!"), (
        "whichever device has stopped, no message lacks its other half"
    )


def ring(extra: int | None) -> list[str]:
    """Four ranks pass on to their right twice before the collective; one of them once more."""
    found = []
    for rank in range(4):
        one = f"send {rank}->{(rank + 1) % 4}, recv {rank}<-{(rank - 1) % 4}, "
        more = one.replace(", ", "!, ") if rank == extra else ""
        ahead = "!" if extra is not None else ""
        found.append(one * 2 + more + f"/{ahead}, " + one.replace(", ", f"{ahead}, ") + f"/{ahead}")
    return found


def test_even_channels_tell_that_the_first_round_of_one_is_odd() -> None:
    for odd in range(4):
        (finding,) = findings_of(*ring(odd))
        assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [odd])
    assert not findings_of(*ring(None))


@pytest.mark.parametrize("odd", [0, 1])
def test_the_only_message_of_a_group_is_one_of_another_by_mistake(odd: int) -> None:
    """All others of the two go by group 1; the third send, or receive, is open on group 0."""
    dumps = []
    for rank, op in enumerate(("send 0->1", "recv 1<-0")):
        groups = ["1", "1", "0" if rank == odd else "1", "1"]
        numbers = Counter[str]()
        rows = []
        for place, group in enumerate(groups):
            numbers[group] += 1
            done = place != (2 if rank == odd else 3)
            rows.append(Row(op, 0, group, done, p2p_seq=numbers[group]))
        dumps.append(columns(rank, rows, members={"0": [0, 1], "1": [0, 1]}))
    (found,) = build_wait_for_graph(dumps).unmatched
    told = [call for call in (found.call, found.instead) if call is not None]
    assert (odd, "0") in [(call.rank, call.group.name) for call in told]
