"""Operations that replays of CUDA graphs launched, of which no buffer has an entry."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hanglab.analyzer.facts.boundary import is_collective
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.recorder.case.operations import GRAPH_CAPTURE, GRAPH_REPLAY


class ReplayedOperations(NamedTuple):
    """One rank's calls in one group: those that replays launched, and all others."""

    replayed: int
    called: int
    #: A call of the rank's own came after the last replay.
    past: bool


def replayed_operations(facts: CaseFacts) -> dict[str, dict[int, ReplayedOperations]]:
    """Group -> rank -> its operations, for groups of which some rank replayed operations.

    Ranks whose records at the boundary have lost their beginning are left out.
    """
    found: dict[str, dict[int, ReplayedOperations]] = {}
    for rank, view in facts.ranks.items():
        for group, operations in _of_rank(view).items():
            found.setdefault(group, {})[rank] = operations
    return {
        group: ranks
        for group, ranks in found.items()
        if any(one.replayed for one in ranks.values())
    }


def _of_rank(view: RankView) -> dict[str, ReplayedOperations]:
    progress = view.progress
    if progress is None or progress.operations_total > len(progress.operations):
        return {}
    captures = [one for one in progress.operations if one.method == GRAPH_CAPTURE]
    captured: dict[int, Counter[str]] = {}
    called: Counter[str] = Counter()
    last: dict[str, int] = {}
    for call in progress.operations:
        if not is_collective(call):
            continue
        graph = next(
            (
                one
                for one in captures
                if one.thread_id == call.thread_id
                and one.entered_ns <= call.entered_ns
                and (one.returned_ns is None or call.entered_ns <= one.returned_ns)
            ),
            None,
        )
        if graph is not None and graph.group_seq is not None:
            captured.setdefault(graph.group_seq, Counter())[call.group] += 1
        else:
            called[call.group] += 1
            last[call.group] = call.index
    replayed: Counter[str] = Counter()
    latest: dict[str, int] = {}
    for call in progress.operations:
        if call.method == GRAPH_REPLAY:
            for group, count in captured.get(call.group_seq or 0, Counter()).items():
                replayed[group] += count
                latest[group] = call.index
    return {
        group: ReplayedOperations(
            replayed[group], called[group], last.get(group, -1) > latest.get(group, -1)
        )
        for group in {*called, *replayed}
    }


def differing_replays(facts: CaseFacts) -> tuple[str, dict[int, int]] | None:
    """The group, and how many operations replays launched on each member, where they differ.

    Only where all members have made as many calls of their own, the last of them behind all
    replays: a rank that stands before a replay is behind for another reason.
    """
    for group, ranks in replayed_operations(facts).items():
        members = next(
            (set(one.ranks) for view in facts.ranks.values() for one in view.groups
             if one.id == group), set(),
        )  # fmt: skip
        alike = len({one.called for one in ranks.values()}) == 1
        counts = {rank: one.replayed for rank, one in sorted(ranks.items())}
        if members == set(ranks) and alike and all(one.past for one in ranks.values()):
            if len(set(counts.values())) > 1:
                return group, counts
    return None
