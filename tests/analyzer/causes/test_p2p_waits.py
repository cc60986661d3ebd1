"""Sends and receives that miss each other, as the boundary sees them."""

from __future__ import annotations

import pytest
from views import ended, job, progress, raised, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.boundary import join
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.recorder.case.progress_records import OperationCall
from hanglab.recorder.case.records import GroupRecord

LOST = "[pair.cc:547] Connection closed by peer [127.0.0.1]:4711"


def issue(view: RankView, *calls: tuple[str, int, int], held: tuple[str, int, int]) -> RankView:
    """Finished calls (method, peer, tag), then one that the rank is held in."""
    progress(view, -1)
    assert view.progress is not None
    view.progress.operations_total = len(calls) + 1
    view.progress.operations = [
        OperationCall(
            index=i,
            method=method,
            group="0",
            group_seq=i,
            entered_ns=i + 1,
            returned_ns=i + 1,
            wait_entered_ns=i + 1,
            wait_returned_ns=i + 1 if i < len(calls) else None,
            completed=i < len(calls),
            peer=peer,
            tag=tag,
            file="/home/me/train.py",
            line=10 + i,
            function="exchange",
        )
        for i, (method, peer, tag) in enumerate([*calls, held])
    ]
    return view


def judged(views: list[RankView], *pairs: GroupRecord, trigger: str = "no_progress") -> Verdict:
    """The verdict on a job whose ranks have nothing but what the boundary saw."""
    facts = job(views, trigger=trigger)
    everybody = GroupRecord(
        id="0", ranks=sorted(facts.ranks), backend="gloo", description="default_pg"
    )
    dumps = [join(v.rank, None, v.progress, [everybody, *pairs], "case") for v in views]
    facts.graph = build_wait_for_graph(
        [dump for dump in dumps if dump is not None], expected=sorted(facts.ranks)
    )
    return conclude(facts)


def test_another_tag_is_no_other_half() -> None:
    past = [("send", 1, 0), ("recv", 1, 0)] * 3
    back = [("recv", 0, 0), ("send", 0, 0)] * 3
    views = [
        issue(waiting(0), *past, held=("send", 1, 0)),
        issue(waiting(1), *back, held=("recv", 0, 7)),
    ]
    verdict = judged(views)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.P2P_UNMATCHED)
    assert verdict.culprits == [1]
    assert "rank 0 in send to rank 1 (default_pg)" in verdict.summary
    assert "rank 1 in recv from rank 0 (default_pg, tag 7)" in verdict.summary
    assert "by tags 0 and 7" in verdict.summary
    assert verdict.location is not None and verdict.location.rank == 1


def test_a_pair_whose_tags_never_agreed_is_unmatched_by_both() -> None:
    views = [
        issue(waiting(0), held=("send", 1, 1)),
        issue(waiting(1), held=("recv", 0, 2)),
        issue(waiting(2), held=("recv", 1, 0)),
    ]
    verdict = judged(views)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert verdict.victims == [2]


@pytest.mark.parametrize(
    ("tags", "culprits"), [((4, 4, 6), [1]), ((4, 6, 4), [0]), ((4, 5, 6), [0, 1])]
)
def test_tags_that_count_steps_tell_who_miscounted(
    tags: tuple[int, int, int], culprits: list[int]
) -> None:
    first, mine, theirs = tags
    views = [
        issue(waiting(0), *[("send", 1, tag) for tag in range(first)], held=("send", 1, mine)),
        issue(waiting(1), *[("recv", 0, tag) for tag in range(first)], held=("recv", 0, theirs)),
    ]
    verdict = judged(views)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, culprits)


@pytest.mark.parametrize(
    ("rounds", "mine", "theirs", "culprits"),
    [
        ((3, 3), 3, 2, [0]),  # It left out what is due.
        ((3, 3), 2, 1, [1]),
        ((3, 3), 3, 1, [0, 1]),
        ((1, 1), 3, 2, [0, 1]),  # Nobody has repeated itself.
    ],
)
def test_tags_that_come_in_rounds_tell_who_left_one_out(
    rounds: tuple[int, int], mine: int, theirs: int, culprits: list[int]
) -> None:
    """Four microbatches a step have a tag each; both are in the third of a step."""
    tags = [[*[0, 1, 2, 3] * count, 0, 1] for count in rounds]
    views = [
        issue(waiting(0), *[("send", 1, tag) for tag in tags[0]], held=("send", 1, mine)),
        issue(waiting(1), *[("recv", 0, tag) for tag in tags[1]], held=("recv", 0, theirs)),
    ]
    verdict = judged(views)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, culprits)


def test_a_half_over_another_group_does_not_meet() -> None:
    views = [
        issue(waiting(0), *[("send", 1, 0)] * 4, held=("send", 1, 0)),
        issue(waiting(1), *[("recv", 0, 0)] * 4, held=("recv", 0, 0)),
        waiting(2),
    ]
    assert views[0].progress is not None
    views[0].progress.operations[-1].group = "5"
    pair = GroupRecord(id="5", ranks=[0, 1], backend="gloo", description="pair")
    verdict = judged(views, pair)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [0])
    assert "rank 0 in send to rank 1 (pair)" in verdict.summary
    assert "by groups 5 and 0" in verdict.summary


@pytest.mark.parametrize("taken", [[], [("recv", 0, 1)]])
def test_a_message_started_under_another_tag_proves_nothing_of_who_goes_on(
    taken: list[tuple[str, int, int]],
) -> None:
    """Rank 0 started its send and went on; as long as it does not wait, more may come."""
    sender = issue(waiting(0), held=("send", 1, 1))
    assert sender.progress is not None
    sender.progress.operations[-1].wait_entered_ns = None
    verdict = judged([sender, issue(waiting(1), *taken, held=("recv", 0, 2)), waiting(2)])
    assert verdict.cause is not Cause.P2P_UNMATCHED


def test_a_pair_that_meets_is_no_ring() -> None:
    views = [
        issue(waiting(0), held=("send", 1, 0)),
        issue(waiting(1), held=("recv", 0, 0)),
    ]
    assert judged(views).culprits == []


def test_send_send_is_a_deadlock_of_both() -> None:
    views = [
        issue(waiting(0), held=("send", 1, 0)),
        issue(waiting(1), held=("send", 0, 0)),
        waiting(2),
    ]
    verdict = judged(views)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_DEADLOCK, [0, 1])


def test_a_message_to_the_wrong_neighbour_is_unmatched() -> None:
    def ring(rank: int, held: tuple[str, int, int]) -> RankView:
        past = [("send", (rank + 1) % 3, 0), ("recv", (rank - 1) % 3, 0)] * 3
        return issue(waiting(rank), *past, held=held)

    views = [
        ring(0, ("recv", 2, 0)),
        ring(1, ("recv", 0, 0)),
        ring(2, ("send", 1, 0)),
    ]
    verdict = judged(views)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [2])


def test_a_message_that_has_both_halves_is_no_operation_of_everybody() -> None:
    views = [
        issue(waiting(0), held=("send", 1, 0)),
        issue(waiting(1), held=("recv", 0, 0)),
        issue(waiting(2), held=("recv", 1, 0)),
    ]
    verdict = judged(views)
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.summary.startswith("Rank 0's send to rank 1 (default_pg) has its other half")


@pytest.mark.parametrize("odd", [0, 1])
def test_who_leaves_the_count_of_its_tags_misses_what_its_peer_has_posted(odd: int) -> None:
    """Each posts its send and waits in its receive, both with the number of its step."""
    views = []
    for rank in (0, 1):
        peer, steps = 1 - rank, [0, 1, 2, 3, 5 if rank == odd else 4]
        calls = [(method, peer, tag) for tag in steps for method in ("send", "recv")]
        views.append(issue(waiting(rank), *calls[:-1], held=calls[-1]))
    verdict = judged(views)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [odd])
    assert "tags" in verdict.summary


def test_what_both_have_posted_holds_nobody_up() -> None:
    """Rank 0 has left its last send out; rank 1, in its receive, owes rank 2 nothing."""
    usual = [("recv", 0, 0), ("send", 2, 0), ("recv", 2, 0)] * 3
    one = issue(waiting(1), *usual, ("send", 2, 0), ("recv", 2, 0), held=("recv", 0, 0))
    assert one.progress is not None
    for call in one.progress.operations[-3:-1]:
        # Posted, and nobody has waited for it.
        call.completed, call.wait_entered_ns, call.wait_returned_ns = False, None, None
    served = [("send", 1, 0)] * 3
    exchanged = [("recv", 1, 0), ("send", 1, 0)] * 4
    barrier = ("barrier", None, 0)
    views = [
        issue(waiting(0), *served, held=barrier),
        one,
        issue(waiting(2), *exchanged, held=barrier),
    ]
    verdict = judged(views)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert not any("a fault of rank 0 does not" in one.detail for one in verdict.evidence)


def test_who_came_to_its_end_owing_messages_is_told_as_that() -> None:
    """Rank 0 ended well after a round less; its peers lose it."""
    there, back = [("send", 1, 0), ("recv", 1, 0)], [("recv", 0, 0), ("send", 0, 0)]
    first = issue(view(0), *(there * 2)[:-1], held=there[-1])
    assert first.progress is not None
    last = first.progress.operations[-1]
    last.completed, last.wait_returned_ns = True, last.wait_entered_ns
    second = issue(waiting(1), *back * 2, held=back[0])
    views = [ended(first), raised(second, "RuntimeError", LOST, user(20), at=2000), waiting(2)]
    verdict = judged(views, trigger="exit")
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [0])
    assert any("exited with code 0 before its peers" in one.detail for one in verdict.evidence)
