"""Ranks that torch itself names as missing, because a monitored barrier waited for them in vain.

``monitored_barrier`` of gloo has no entry in any buffer.  Its first rank waits
for a sign of every other one and raises when the time is up; what it says names
who did not come (``ProcessGroupGloo::monitoredBarrier``, ProcessGroupGloo.cpp).
With ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` every collective is preceded by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hanglab.analyzer.causes.thresholds import BARRIER_LABEL_SURE
from hanglab.analyzer.facts.absent_ranks import classify
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.error_texts import AT_BARRIER, MISSED_BARRIER
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CONFIRMED, SEEN
from hanglab.analyzer.verdict import Cause, CollectiveRef, Evidence, Location
from hanglab.analyzer.wording import name_line, name_ranks
from hanglab.recorder.case.operations import MONITORED_BARRIER
from hanglab.recorder.case.progress_records import OperationCall


@dataclass(frozen=True)
class _Barrier:
    """One rank's words on a barrier that failed; ``missing`` are global ranks."""

    by: int
    quote: str
    source: str
    group: str
    members: tuple[int, ...]
    missing: tuple[int, ...]
    #: When it gave up, on the job's clock; None if not told.
    at_ns: int | None


@detector
def monitored_barriers(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks that never came to the barrier, each by what it does instead."""
    for view in facts.ranks.values():
        barrier = _said(facts, view)
        if barrier is None:
            continue
        roots = _roots(facts, barrier)
        if roots is None:
            continue
        victims = [
            r for r, v in facts.ranks.items() if r not in roots and (r == barrier.by or _came(v))
        ]
        for rank in roots:
            yield _proposal(facts, barrier, rank, victims)
        return


def _said(facts: CaseFacts, view: RankView) -> _Barrier | None:
    texts: list[tuple[str, str, int | None]] = [
        (source, one.message, one.at.wall_ns)
        for source, raised in (("exceptions", view.exceptions), ("handled", view.handled))
        for one in raised
    ]
    texts.append(("stderr", view.stderr, None))
    for source, text, at_ns in texts:
        # wait_all_ranks logs them one by one before it raises for all.
        matches = list(MISSED_BARRIER.pattern.finditer(text))
        if not matches:
            continue
        match = max(matches, key=lambda one: one["missing"].count(","))
        group, members = _group_of(facts, view)
        places = [int(place) for place in match["missing"].split(", ")]
        by = int(match["by"])
        if max([by, *places]) >= len(members) or members[by] != view.rank:
            return None
        missing = tuple(members[place] for place in places)
        return _Barrier(view.rank, match[0], source, group, members, missing, at_ns)
    return None


def _failed(view: RankView) -> OperationCall | None:
    """The call in which the rank gave up: the barrier, or what one precedes."""
    operations = view.progress.operations if view.progress else []
    return next((o for o in reversed(operations) if o.failed or _is_barrier(o)), None)


def _is_barrier(operation: OperationCall) -> bool:
    return operation.method == MONITORED_BARRIER.name


def _group_of(facts: CaseFacts, view: RankView) -> tuple[str, tuple[int, ...]]:
    """Name and members of the group whose barrier failed; no members where they are not known."""
    call = _failed(view)
    if call is None:
        return "", ()
    for group in view.groups:
        if group.id == call.group and group.ranks:
            return group.id, tuple(group.ranks)
    for known_group in facts.graph.groups:
        if known_group.name == call.group:
            return known_group.name, known_group.members
    return "", ()


def _entered(view: RankView, group: str) -> int | None:
    """Number of the group's barriers that the rank has entered; None if nobody counted them all."""
    progress = view.progress
    if progress is None or progress.operations_total > len(progress.operations):
        return None
    return sum(1 for o in progress.operations if _is_barrier(o) and o.group == group)


def _roots(facts: CaseFacts, barrier: _Barrier) -> list[int] | None:
    """Ranks that kept the barrier waiting by themselves; None where that is not proved."""
    entered = _entered(facts.ranks[barrier.by], barrier.group)
    absent: set[int] = set()
    came = {barrier.by}
    for rank in barrier.members:
        view = facts.ranks.get(rank)
        if view is None or rank == barrier.by:
            continue
        mine = _entered(view, barrier.group)
        counted = bool(entered) and mine is not None
        if counted and (mine or 0) < (entered or 0):
            absent.add(rank)
        elif rank in barrier.missing:
            if counted or barrier.source != "exceptions":
                # It came all the same, or has come since.
                return None
            absent.add(rank)
        elif counted or any(AT_BARRIER.pattern.search(one.message) for one in view.exceptions):
            came.add(rank)
    if not absent or any(_explained(facts.ranks[r], barrier.at_ns) for r in absent):
        return None
    on = {rank: set[int]() for rank in absent}
    for wait in facts.graph.waits:
        on.get(wait.call.rank, set()).update(wait.on)
    # Those who wait for the barrier's own rank elsewhere went another way than it did.
    against = {w.call.rank for w in facts.graph.waits if barrier.by in w.on}
    if absent & against and 2 * len((absent | against) & set(barrier.members)) >= len(
        barrier.members
    ):
        return None
    roots = sorted(rank for rank in absent if not on[rank] & absent)
    # Who waits for a rank that is not known to have come to it may not be where it began.
    if any(on[rank] - came for rank in roots):
        return None
    return roots or None


def _explained(view: RankView, at_ns: int | None) -> bool:
    """True if the rank's end, its own exception or its process state says why it did not come.

    What befell it after the barrier was given up is the doing of whoever ended the job.
    """
    own = [one.at.wall_ns for one in view.exceptions if not AT_BARRIER.pattern.search(one.message)]
    if view.ended is not None and view.failed:
        own.append(view.ended.at.wall_ns)
    return any(at_ns is None or at <= at_ns for at in own) or view.state in ("T", "t", "D")


def _came(view: RankView) -> bool:
    return (
        any(AT_BARRIER.pattern.search(one.message) for one in view.exceptions) or view.ended is None
    )


def _proposal(facts: CaseFacts, barrier: _Barrier, rank: int, victims: Sequence[int]) -> Proposal:
    view = facts.ranks[rank]
    cause, confidence, words, location = _label(facts, view, barrier.at_ns)
    group = next((g for g in facts.graph.groups if g.name == barrier.group), None)
    return propose(
        facts,
        cause,
        [rank],
        failure_on_record=True,
        # Ahead of what those say who merely gave up waiting.
        confidence=max(confidence, CONFIRMED),
        summary=f"Rank {rank} never came to a monitored barrier{name_line(location)}: {words}; "
        f"{name_ranks([barrier.by])} gave up waiting for {name_ranks(barrier.missing)}.",
        evidence=[
            Evidence(barrier.source, barrier.by, barrier.quote),
            Evidence("stack", rank, words + name_line(location)),
        ],
        location=location,
        collective=CollectiveRef(
            group=(group.description or group.name) if group is not None else barrier.group,
            group_id=barrier.group,
            ranks=list(barrier.members),
            seq=None,
            op=MONITORED_BARRIER.name,
        ),
        victims=victims,
    )


def _label(
    facts: CaseFacts, view: RankView, at_ns: int | None
) -> tuple[Cause, float, str, Location | None]:
    if view.ended is not None:
        lived = at_ns is not None and view.ended.at.wall_ns > at_ns
        words = "it lived and was elsewhere" if lived else "it had come to its end"
        return Cause.MISSING_RANK, SEEN, words, None
    call = facts.blocked(view.rank)
    if call is not None:
        words = f"it waits in {call.op} instead"
        return Cause.MISSING_RANK, SEEN, words, view.location()
    cause, confidence, words, location = classify(facts, view)
    # That it never came is proved; what it does instead only sometimes.
    return (
        (cause if confidence >= BARRIER_LABEL_SURE else Cause.MISSING_RANK),
        confidence,
        words,
        location,
    )
