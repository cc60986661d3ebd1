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
from hanglab.analyzer.strengths import CANDIDATES, TIED
from hanglab.analyzer.verdict import Cause, Finding

STAGES = 2
#: Operation, group, line, size; a message has its peer instead of a size.
Called = tuple[str, str, int, int]


def groups(replicas: int) -> dict[str, Sequence[int]]:
    """The world, the pipeline of each replica, and the data-parallel group of each stage."""
    size = STAGES * replicas
    found: dict[str, Sequence[int]] = {"0": range(size)}
    for replica in range(replicas):
        found[str(10 + replica)] = range(replica, size, replicas)
    for stage in range(STAGES):
        found[str(20 + stage)] = range(stage * replicas, (stage + 1) * replicas)
    return found


def step(rank: int, replicas: int, *, micro: int = 3, line: int = 28) -> list[Called]:
    """All forward, then all backward, from one line; then the stage's gradients and the norm."""
    stage, replica = divmod(rank, replicas)
    pipe, peer = str(10 + replica), 1 - stage
    forward = ("recv" if stage else "send", pipe, line, peer)
    backward = ("send" if stage else "recv", pipe, line, peer)
    return [
        *[forward] * micro,
        *[backward] * micro,
        ("reduce_scatter", str(20 + stage), 40, 64 << stage),
        ("all_reduce", pipe, 42, 1),
    ]


def dump_of(rank: int, replicas: int, calls: Sequence[Called], *, idle: bool = False) -> RankDump:
    """The buffer of a rank that waits in the last of its calls, unless it is ``idle``."""
    stage = rank // replicas
    numbers: Counter[tuple[str, bool]] = Counter()
    rows = []
    for place, (op, group, line, other) in enumerate(calls):
        message = op in ("send", "recv")
        numbers[group, message] += 1
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
                extra={"thread_id": "7", "thread_name": "python"},
            )
        )
    mine = {name: one for name, one in groups(replicas).items() if rank in one}
    return columns(rank, rows, members=mine)


def findings(replicas: int, calls: Sequence[Sequence[Called]], idle: int = -1) -> list[Finding]:
    dumps = [dump_of(r, replicas, mine, idle=r == idle) for r, mine in enumerate(calls)]
    return synchronization_findings(build_wait_for_graph(dumps))


def held_up(replicas: int, odd: int) -> list[list[Called]]:
    """Ranks in their first step: the stage of one that does not come waits for it, and the rest."""
    ranks = [step(rank, replicas) for rank in range(STAGES * replicas)]
    return [
        mine[:-1] if rank // replicas == odd // replicas and rank != odd else mine
        for rank, mine in enumerate(ranks)
    ]


@pytest.mark.parametrize(("replicas", "odd"), [(2, 1), (3, 0), (3, 2), (4, 1)])
def test_a_stage_with_one_microbatch_less_is_told_by_its_siblings(replicas: int, odd: int) -> None:
    """In the first step no round of its own tells, and its peer waits for the last gradient."""
    ranks = held_up(replicas, odd)
    last = replicas + odd
    ranks[odd], ranks[last] = step(odd, replicas)[:6], step(last, replicas, micro=2)
    (found,) = findings(replicas, ranks)
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [last])
    assert "in its place in other replicas" in found.summary
    assert (found.confidence == CANDIDATES) is (replicas == 2)


def test_a_single_pipeline_does_not_tell_which_end_it_was() -> None:
    ranks = [step(0, 1)[:6], [one for one in step(1, 1, micro=2) if one[0] != "reduce_scatter"]]
    (found,) = findings(1, ranks)
    assert (found.culprits, found.confidence) == ([0, 1], TIED)


def test_replicas_with_microbatches_of_their_own_tell_nothing() -> None:
    """Replica 0 has four in its step; which end of replica 1's message is wrong stays open."""
    ranks = [
        step(0, 2, micro=4)[:-1],
        step(1, 2)[:6],
        step(2, 2, micro=4),
        step(3, 2, micro=2),
    ]
    (found,) = findings(2, ranks)
    assert (found.culprits, found.confidence) == ([1, 3], TIED)


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
