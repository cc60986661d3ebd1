"""Classes of ranks that stand alike: a job of a thousand ranks has few of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.stack_position import main_thread
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import Verdict
from hanglab.harness.report.explanation.headlines import call_name
from hanglab.harness.report.page.records import RankClass
from hanglab.harness.report.rank_ranges import ranges

#: What a rank is in the verdict, as a page names it.
CULPRIT, VICTIM, OTHER, MISSING = "culprit", "waits", "", "missing"
_ORDER = (CULPRIT, MISSING, VICTIM, OTHER)


def role_of(rank: int, verdict: Verdict) -> str:
    """The rank's part in the verdict."""
    if rank in verdict.culprits:
        return CULPRIT
    if rank in verdict.inputs.missing_ranks:
        return MISSING
    return VICTIM if rank in verdict.victims else OTHER


def rank_classes(facts: CaseFacts, verdict: Verdict) -> list[RankClass]:
    """Classes of all ranks, those of culprits first, then by size."""
    members: dict[Hashable, list[int]] = {}
    for rank in sorted({*facts.ranks, *verdict.inputs.missing_ranks}):
        view = facts.ranks.get(rank)
        role = role_of(rank, verdict)
        key = (role, None if view is None else _standing(facts, view))
        members.setdefault(key, []).append(rank)
    found = []
    for ranks in members.values():
        first = facts.ranks.get(ranks[0])
        found.append(
            RankClass(
                ranks=ranks,
                shown=ranges(ranks),
                representative=ranks[0],
                role=role_of(ranks[0], verdict),
                doing=doing_of(facts, ranks),
                pid=first.pid if first is not None else None,
                host=first.host if first is not None else "",
                state=_state(first) if first is not None else "",
            )
        )
    found.sort(key=lambda one: (_ORDER.index(one.role), -len(one.ranks), one.ranks[0]))
    return found


def _standing(facts: CaseFacts, view: RankView) -> Hashable:
    """Equal for ranks that stand alike.  Groups count by their size: each rank has its own."""
    sample = view.captured_stack
    thread = main_thread(sample) if sample is not None else None
    stack = tuple(thread.frames) if thread is not None else ()
    calls = tuple(map(_kind_of_call, facts.graph.unfinished.get(view.rank, ())))
    last = facts.graph.last_calls.get(view.rank)
    return (
        stack,
        calls,
        _kind_of_call(last) if last is not None and not calls else None,
        _state(view),
    )


def _kind_of_call(call: Call) -> Hashable:
    return call.op, len(call.group.members), call.seq, call.stack


def _state(view: RankView) -> str:
    if view.ended is not None:
        return view.ended.words
    return {"T": "stopped", "t": "traced", "D": "uninterruptible", "Z": "defunct"}.get(
        view.state, ""
    )


def doing_of(facts: CaseFacts, ranks: Sequence[int]) -> str:
    """In a few words what ranks that stand alike do: their open operation, else their place."""
    view = facts.ranks.get(ranks[0])
    if view is None:
        return "left nothing to look at"
    calls = facts.graph.unfinished.get(view.rank, ())
    frame = view.user_frames[0] if view.user_frames else None
    if frame is None and calls and calls[0].stack:
        frame = view.code.innermost_user(calls[0].stack)  # type: ignore[assignment]
    place = f"{_base(frame.file)}:{frame.line} ({frame.function})" if frame is not None else ""
    if calls:
        return f"in {_name_of_all(facts, calls[0], ranks)}{f', {place}' if place else ''}"
    if place:
        return f"at {place}"
    last = facts.graph.last_calls.get(view.rank)
    if last is None:
        return "nothing is known"
    return f"after {_name_of_all(facts, last, ranks)}"


def _name_of_all(facts: CaseFacts, call: Call, ranks: Sequence[int]) -> str:
    """The call's name, without its peer where ranks have other ones."""
    if call.peer is None or len(ranks) == 1:
        return call_name(call)
    graph = facts.graph
    theirs = [
        unfinished[0] if (unfinished := graph.unfinished.get(rank)) else graph.last_calls.get(rank)
        for rank in ranks
    ]
    if {one.peer for one in theirs if one is not None} == {call.peer}:
        return call_name(call)
    return call_name(replace(call, peer=None))


def _base(file: str) -> str:
    return file.rsplit("/", 1)[-1]
