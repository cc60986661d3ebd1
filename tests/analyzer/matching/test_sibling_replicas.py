"""Pipelines in replicas: who left what the ranks in its place elsewhere do, and stages that differ.

Ranks ``stage * replicas + replica``; each stage reduces its gradients, each replica its norm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.strengths import PLAUSIBLE, TIED
from hanglab.analyzer.verdict import Cause, Finding

#: Operation, group, line, size; a message has its peer instead of a size.
Called = tuple[str, str, int, int]


def groups(stages: int, replicas: int) -> dict[str, Sequence[int]]:
    """The world, the pipeline of each replica, and the data-parallel group of each stage."""
    size = stages * replicas
    found: dict[str, Sequence[int]] = {"0": range(size)}
    for replica in range(replicas):
        found[str(10 + replica)] = range(replica, size, replicas)
    for stage in range(stages):
        found[str(20 + stage)] = range(stage * replicas, (stage + 1) * replicas)
    return found


def step(rank: int, replicas: int, *, stages: int = 2, micro: int = 3) -> list[Called]:
    """All forward, then all backward, from one line; then the stage's gradients and the norm."""
    stage, replica = divmod(rank, replicas)
    pipe, last = str(10 + replica), stages - 1
    took, gave = ("recv", pipe, 28, stage - 1), ("send", pipe, 28, stage + 1)
    forward = [*([took] if stage else []), *([gave] if stage < last else [])]
    took, gave = ("recv", pipe, 28, stage + 1), ("send", pipe, 28, stage - 1)
    backward = [*([took] if stage < last else []), *([gave] if stage else [])]
    return [
        *forward * micro,
        *backward * micro,
        ("reduce_scatter", str(20 + stage), 40, 64 << stage),
        ("all_reduce", pipe, 42, 1),
    ]


def dump_of(
    rank: int,
    calls: Sequence[Called],
    members: dict[str, Sequence[int]],
    *,
    idle: bool = False,
    thread: str = "7",
) -> RankDump:
    """The buffer of a rank that waits in the last of its calls, unless it is ``idle``."""
    numbers: Counter[tuple[str, bool]] = Counter()
    rows = []
    mine = {name: one for name, one in members.items() if rank in one}
    for place, (op, group, line, other) in enumerate(calls):
        message = op in ("send", "recv")
        numbers[group, message] += 1
        stage = list(mine[group]).index(rank)
        ends = f"{stage}->{other}" if op == "send" else f"{stage}<-{other}"
        rows.append(
            Row(
                f"{op} {ends}" if message else op,
                numbers[group, False],
                group=group,
                done=idle or place < len(calls) - 1,
                inputs=((4,),) if message else ((other,),),
                line=line,
                p2p_seq=numbers[group, True] if message else 0,
                extra={"thread_id": thread, "thread_name": "python"} if thread else {},
            )
        )
    return columns(rank, rows, members=mine)


def findings(
    replicas: int,
    calls: Sequence[Sequence[Called]],
    *,
    idle: int = -1,
    lost: int = -1,
    logging: bool = False,
    thread: str = "7",
) -> list[Finding]:
    """``logging``: the first rank and the last have a group of their own, which nobody used."""
    members = groups(len(calls) // replicas, replicas)
    if logging:
        members["30"] = (0, len(calls) - 1)
    dumps = [
        dump_of(rank, mine, members, idle=rank == idle, thread=thread)
        for rank, mine in enumerate(calls)
        if rank != lost
    ]
    return synchronization_findings(build_wait_for_graph(dumps))


def fewer(replicas: int, odd: int, *, steps: int = 1, stages: int = 2) -> list[list[Called]]:
    """Whole steps, and one in which the last stage of a replica takes two of three microbatches.

    It comes to its gradients, which its stage reduces; the stage before it waits for the third.
    """
    size = stages * replicas
    before, last = size - 2 * replicas + odd, size - replicas + odd
    ranks = []
    for rank in range(size):
        whole = step(rank, replicas, stages=stages)
        now = step(rank, replicas, stages=stages, micro=2) if rank == last else whole
        if rank == before:
            now = whole[: -2 if rank // replicas == 0 else -3]
        elif rank % replicas == odd and rank != last:
            now = whole[:-3]  # It waits for what comes back through the stage that waits.
        elif rank // replicas < stages - 1:
            now = whole[:-1]
        ranks.append(whole * (steps - 1) + now)
    return ranks


@pytest.mark.parametrize(("replicas", "odd"), [(2, 1), (3, 0), (3, 2), (4, 1)])
@pytest.mark.parametrize("thread", ["7", ""])
def test_a_stage_with_one_microbatch_less_is_told_by_its_siblings(
    replicas: int, odd: int, thread: str
) -> None:
    """Once they had a round alike; its peer waits for the last gradient.

    Dumps of older formats do not tell threads.
    """
    (found,) = findings(replicas, fewer(replicas, odd, steps=2), thread=thread)
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [replicas + odd])
    assert "in its place in other replicas" in found.summary
    assert (found.confidence == PLAUSIBLE) is (replicas == 2)


def test_of_two_stages_in_their_first_step_nothing_tells() -> None:
    """The replica may have had two microbatches, and the first stage one too many."""
    (found,) = findings(3, fewer(3, 1))
    assert (found.culprits, found.confidence) == ([1, 4], TIED)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_single_pipeline_does_not_tell_which_end_it_was(steps: int) -> None:
    (found,) = findings(1, [[c for c in mine if c[1] != "20"] for mine in fewer(1, 0, steps=steps)])
    assert (found.culprits, found.confidence) == ([0, 1], TIED)


def test_replicas_with_microbatches_of_their_own_tell_nothing() -> None:
    """Replica 0 has four in its step; which end of replica 1's message is wrong stays open."""
    ranks = [step(0, 2, micro=4)[:-1], step(1, 2)[:6], step(2, 2, micro=4), step(3, 2, micro=2)]
    (found,) = findings(2, ranks)
    assert (found.culprits, found.confidence) == ([1, 3], TIED)


@pytest.mark.parametrize("lost", [-1, 4, 5])
def test_a_replica_with_one_microbatch_more_by_right_is_not_told_by_the_others(lost: int) -> None:
    """Its last stage does as its siblings do, and is wrong; its dump, or a sibling's, may lack."""
    ranks = [step(rank, 3) for rank in range(6)]
    ranks[1] = step(1, 3, micro=4)[:4]
    ranks = [mine[:-1] if rank in (0, 2) else mine for rank, mine in enumerate(ranks)]
    found = findings(3, ranks, lost=lost)
    assert all(set(one.culprits) not in ({1}, {0}, {2}) for one in found)


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_middle_of_a_replica_with_more_by_right_does_not_make_its_end_the_culprit(
    replicas: int,
) -> None:
    """Replica 1 has three microbatches; its middle stage does two, as those of the others."""
    ranks = [step(rank, replicas, stages=3, micro=2) for rank in range(3 * replicas)]
    first, last = 1, 2 * replicas + 1
    ranks[first] = step(first, replicas, stages=3)[:3]
    ranks[last] = step(last, replicas, stages=3)[:3]
    ranks = [mine[:-1] if rank < replicas and rank != first else mine
             for rank, mine in enumerate(ranks)]  # fmt: skip
    found = findings(replicas, ranks)
    assert all(set(one.culprits) not in ({first}, {last}) for one in found)


@pytest.mark.parametrize("odd", range(6))
@pytest.mark.parametrize("logging", [True, False])
def test_a_group_across_replicas_hides_no_rank_that_left_a_call_out(
    odd: int, logging: bool
) -> None:
    """The first rank and the last log in a group of theirs; one leaves its gradients out."""
    ranks = [step(rank, 3) * 2 for rank in range(6)]
    stage = odd // 3
    for rank, mine in enumerate(ranks):
        if rank == odd:
            ranks[rank] = [*mine[:-2], mine[-1]]
        elif rank // 3 == stage:
            ranks[rank] = mine[:-1]
    ranks[(odd + 3) % 6] += [("all_reduce", "0", 70, 1)]
    ranks[odd] += [("all_reduce", "0", 70, 1)]
    (found,) = findings(3, ranks, logging=logging)
    assert found.culprits == [odd]
    assert found.cause in (Cause.SKIPPED_COLLECTIVE, Cause.COLLECTIVE_MISMATCH)


def stopped_between_passes(stopped: int, passes: int) -> list[list[Called]]:
    """Tensor-parallel pairs of two stages, each with the passes of a step in its own order.

    One stops in its third step after some passes, and its pair waits in the next; the other stage
    has ended its step.
    """
    order = {0: (50, 50, 50, 60, 60, 60), 1: (50, 60, 50, 60, 50, 60)}
    ranks: list[list[Called]] = []
    for rank in range(4):
        stage, pair = divmod(rank, 2)
        pipe = ("send" if stage == 0 else "recv", str(10 + pair), 28, 1 - stage)
        calls = [("all_reduce", str(20 + stage), line, 8) for line in order[stage]]
        ranks.append([pipe, *calls, ("all_reduce", "0", 70, 1)] * 3)
    mate, done = stopped ^ 1, 17 + passes
    ranks[stopped], ranks[mate] = ranks[stopped][:done], ranks[mate][: done + 1]
    return ranks


@pytest.mark.parametrize("passes", range(1, 6))
@pytest.mark.parametrize("stopped", range(4))
def test_a_stage_is_not_compared_with_the_order_of_another(stopped: int, passes: int) -> None:
    """Stages come to one line in orders of their own."""
    (found,) = findings(2, stopped_between_passes(stopped, passes), idle=stopped)
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [stopped])


@pytest.mark.parametrize("replicas", [3, 4])
@pytest.mark.parametrize("odd", [0, 2])
def test_a_line_that_all_siblings_come_to_is_one_of_the_program(replicas: int, odd: int) -> None:
    """The last stage of a replica does not send its first result; where one alone has, it may."""
    ranks = []
    for rank in range(2 * replicas):
        stage, replica = divmod(rank, replicas)
        pipe, ended = str(10 + replica), step(rank, replicas)
        following: Called = ("recv", pipe, 28, 0) if stage else ("all_reduce", "20", 50, 2)
        result: Called = ("send", pipe, 70, 0) if stage else ("recv", pipe, 71, 1)
        if replica != odd:
            ranks.append([*ended, result, following])
        else:
            ranks.append([*ended, following if stage else result])
    (found,) = findings(replicas, ranks)
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [replicas + odd])
