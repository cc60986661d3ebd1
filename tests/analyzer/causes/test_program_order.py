"""Differences of operations that the ranks' places in the program tell apart."""

from __future__ import annotations

import pytest
from views import C10D, ended, job, progress, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import OrderDeparture, Unmatched, Wait, WaitKind
from hanglab.analyzer.matching.call_lookup import CallLookup, DumpsInMemory
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.progress_records import Batch, OperationCall, SectionTotal
from hanglab.recorder.case.records import CodeBlock, CodeLoop, CodeShape, GroupRecord, StackFrame

#: An if with lines 19 and 20 in one branch and 21 in the other one, and line 22 behind it.
BLOCKS = [
    CodeBlock([18], [1, 2]), CodeBlock([19, 20], [3]), CodeBlock([21], [3]), CodeBlock([22], [])
]  # fmt: skip


def at(rank: int, line: int, *counters: int | None, backend: str = "gloo") -> RankView:
    """In an operation at ``line`` of loops that lie in each other, with their counters."""
    one = view(rank, StackFrame("broadcast", C10D, 3245), user(line))
    loops = [CodeLoop(15 + i, 25 - i, counter) for i, counter in enumerate(counters)]
    one.shapes = [CodeShape("/home/me/train.py", "train", 10, 40, loops, BLOCKS)]
    one.groups = [
        GroupRecord(id="0", ranks=[0, 1, 2, 3], backend=backend, description="default_pg")
    ]
    return one


def differing(views: list[RankView], *, skipped: bool = False) -> CaseFacts:
    """Rank 3 called an all_reduce under the number under which its peers called a broadcast."""
    facts = job(views)
    (group,) = facts.graph.groups
    calls = {r: Call(r, group, 7, "all_reduce" if r == 3 else "broadcast") for r in range(4)}
    facts.graph.divergences.append(
        Divergence(
            group=group,
            seq=7,
            difference=Difference.OPERATION,
            calls=calls,
            deviating=(3,),
            candidates=(),
            skipped=skipped,
        )
    )
    # A broadcast lets go of rank 2, which waits in its next operation.
    calls[2] = Call(2, group, 8, "all_reduce")
    facts.graph.waits[:] = [Wait(call, WaitKind.STALLED, ()) for call in calls.values()]
    return facts


@pytest.mark.parametrize(
    ("mine", "theirs", "cause"),
    [
        ((61,), (60,), Cause.SKIPPED_COLLECTIVE),
        ((60,), (60,), Cause.COLLECTIVE_MISMATCH),
        ((60,), (61,), Cause.COLLECTIVE_MISMATCH),
        ((2, 5), (2, 4), Cause.SKIPPED_COLLECTIVE),
        ((2, 0), (1, 9), Cause.SKIPPED_COLLECTIVE),
        # Which iteration of the outer loop it is, nobody knows.
        ((None, 5), (None, 4), Cause.COLLECTIVE_MISMATCH),
    ],
)
def test_who_did_as_much_in_more_iterations_left_something_out(
    mine: tuple[int | None, ...], theirs: tuple[int | None, ...], cause: Cause
) -> None:
    views = [at(r, 22, *(mine if r == 2 else theirs)) for r in range(3)]
    verdict = conclude(differing([*views, at(3, 20, *mine)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])
    assert ("later iteration" in verdict.summary) is (cause is Cause.SKIPPED_COLLECTIVE)


@pytest.mark.parametrize(
    ("mine", "theirs", "backend", "cause"),
    [
        (22, 20, "gloo", Cause.SKIPPED_COLLECTIVE),
        (20, 19, "gloo", Cause.SKIPPED_COLLECTIVE),
        (20, 22, "gloo", Cause.COLLECTIVE_MISMATCH),
        # Two branches: one took the other's.
        (21, 20, "gloo", Cause.COLLECTIVE_MISMATCH),
        (20, 21, "gloo", Cause.COLLECTIVE_MISMATCH),
        # Its host may have run on.
        (22, 20, "nccl", Cause.COLLECTIVE_MISMATCH),
    ],
)
def test_a_later_line_tells_an_omission_and_another_branch_does_not(
    mine: int, theirs: int, backend: str, cause: Cause
) -> None:
    views = [at(r, theirs, 60, backend=backend) for r in range(3)]
    verdict = conclude(differing([*views, at(3, mine, 60, backend=backend)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])


@pytest.mark.parametrize(
    ("inner", "cause"), [(None, Cause.UNEVEN_INPUTS), (4, Cause.SKIPPED_COLLECTIVE)]
)
def test_as_many_epochs_say_nothing_of_their_steps(inner: int | None, cause: Cause) -> None:
    """Rank 3 is past an epoch's loop over data and the loop of epochs."""
    views = [at(r, 20, 1, inner) for r in range(3)]
    verdict = conclude(differing([*views, at(3, 30, 1, inner)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])


def test_what_later_operations_prove_is_not_given_up_for_a_place_behind_the_loop() -> None:
    """Its operations go on as its peers' with one left out, and nobody counts the steps."""
    views = [at(r, 20, None) for r in range(3)]
    verdict = conclude(differing([*views, at(3, 30, None)], skipped=True))
    assert (verdict.cause, verdict.culprits) == (Cause.SKIPPED_COLLECTIVE, [3])


@pytest.mark.parametrize(
    ("backend", "cause"),
    [("gloo", Cause.SKIPPED_COLLECTIVE), ("nccl", Cause.COLLECTIVE_MISMATCH)],
)
def test_more_steps_by_as_many_operations_are_an_omission_where_hosts_wait(
    backend: str, cause: Cause
) -> None:
    views = [at(r, 20, 1, 4, backend=backend) for r in range(3)]
    verdict = conclude(differing([*views, at(3, 30, 1, 7, backend=backend)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])


def drew(one: RankView, batches: int) -> RankView:
    """With loaders that handed out so many batches."""
    progress(one, -1)
    assert one.progress is not None
    one.progress.batches = [Batch(at_ns=n, elements=8) for n in range(batches)]
    return one


@pytest.mark.parametrize(
    ("mine", "theirs", "cause"),
    [
        (4, 4, Cause.SKIPPED_COLLECTIVE),
        (4, 5, Cause.COLLECTIVE_MISMATCH),
        (0, 0, Cause.COLLECTIVE_MISMATCH),
    ],
)
def test_in_a_loop_that_counts_nothing_batches_tell_the_step(
    mine: int, theirs: int, cause: Cause
) -> None:
    """A later line of the same step, in a loop without a counter of its own."""
    views = [drew(at(r, 20, None), theirs) for r in range(3)]
    verdict = conclude(differing([*views, drew(at(3, 22, None), mine)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])


def updated(one: RankView, steps: int) -> RankView:
    """With an optimizer that made so many steps."""
    progress(one, -1)
    assert one.progress is not None
    one.progress.section_totals = [SectionTotal("step", "update", steps, 1, 1)]
    return one


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        (9, Cause.SKIPPED_COLLECTIVE),  # a loop over gradients, within a step
        (10, Cause.SKIPPED_COLLECTIVE),
        (63, Cause.UNEVEN_INPUTS),  # a loop over batches, within an epoch
    ],
)
def test_a_loop_within_a_step_of_the_optimizer_is_none_over_inputs(
    steps: int, cause: Cause
) -> None:
    views = [updated(at(r, 20, 9, None), steps) for r in range(3)]
    mine = at(3, 25, 9, None)
    verdict = conclude(differing([*views, updated(mine, steps)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])


def called(one: RankView, *lines: int) -> RankView:
    """With calls at these lines in the boundary's ring, all that there were."""
    progress(one, -1)
    assert one.progress is not None
    one.progress.operations = [
        OperationCall(n, "allreduce", "0", n, file="/home/me/train.py", line=at, function="train")
        for n, at in enumerate(lines)
    ]
    one.progress.operations_total = len(lines)
    return one


@pytest.mark.parametrize(
    ("calls", "cause"),
    [
        ((25, 25), Cause.UNEVEN_INPUTS),  # the peers have yet to come there in this epoch
        ((25, 25, 25), Cause.COLLECTIVE_MISMATCH),  # or are in an epoch further
    ],
)
def test_a_rank_that_died_tells_its_epoch_by_its_calls(
    calls: tuple[int, ...], cause: Cause
) -> None:
    """Gloo aborted rank 3 behind the loop that its peers are in: no stack of it was had."""
    views = [called(at(r, 20, 1, None), 25) for r in range(3)]
    dead = called(ended(view(3, has_dump=False), signal=6), *calls)
    dead.stderr = (
        "enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4"
    )
    verdict = conclude(differing([*views, dead]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])


@pytest.mark.parametrize(
    ("mine", "theirs", "cause"),
    [
        (20, 21, Cause.COLLECTIVE_MISMATCH),  # its peers are further: it left nothing out
        (24, 21, Cause.SKIPPED_COLLECTIVE),
        (21, 21, Cause.SKIPPED_COLLECTIVE),
    ],
)
def test_who_is_behind_its_peers_has_a_call_too_many(mine: int, theirs: int, cause: Cause) -> None:
    """It waits in what comes later in each round, and its peers have not entered it."""
    views = [called(at(r, 20, mine if r == 3 else theirs), 20) for r in range(4)]
    facts = job(views)
    (group,) = facts.graph.groups
    late, due = Call(3, group, 7, "all_gather"), Call(0, group, 7, "all_reduce")
    facts.graph.departures = [OrderDeparture(3, (), late, due, left_out=True)]
    facts.graph.waits = [Wait(late, WaitKind.NOT_ENTERED, (0, 1, 2))]
    facts.graph.waits += [
        Wait(Call(r, group, None, "recv", peer=3), WaitKind.PEER, (3,)) for r in range(3)
    ]
    verdict = conclude(facts)
    assert (verdict.cause, verdict.culprits) == (cause, [3])


def elsewhere(rank: int, line: int) -> RankView:
    """In an operation of another function than its peers', called from one line with theirs."""
    one = at(rank, line, 21)
    one.stacks = view(
        rank, StackFrame("broadcast", C10D, 3245), StackFrame("serve", user(1).file, line)
    ).stacks
    return one


@pytest.mark.parametrize(
    ("mine", "theirs", "cause"),
    [
        (22, 21, Cause.SKIPPED_COLLECTIVE),
        (21, 21, Cause.P2P_UNMATCHED),
        (20, 21, Cause.P2P_UNMATCHED),
    ],
)
@pytest.mark.parametrize("others", [1, 3])
def test_who_waits_in_a_message_of_its_next_round_left_out_what_its_peers_wait_in(
    mine: int, theirs: int, cause: Cause, others: int
) -> None:
    """Those of ``others`` that are in a function of their own tell nothing."""
    peers = [at(r, 20, theirs) if r < others else elsewhere(r, 33) for r in range(3)]
    facts = job([*peers, at(3, 20, mine)])
    (group,) = facts.graph.groups
    message = Call(3, group, None, "recv", peer=0)
    waits = [Call(r, group, 7, "all_reduce") for r in range(3)]
    facts.graph.unmatched = [Unmatched(message, waits[0], (3,))]
    facts.graph.waits = [Wait(message, WaitKind.PEER, (0,))]
    facts.graph.waits += [Wait(call, WaitKind.NOT_ENTERED, (3,)) for call in waits]
    facts.graph.lookup = CallLookup(DumpsInMemory(facts.dumps))
    verdict = conclude(facts)
    assert (verdict.cause, verdict.culprits) == (cause, [3])
    assert ("later iteration" in verdict.summary) is (cause is Cause.SKIPPED_COLLECTIVE)
