"""Classes of ranks that stand alike: a job of a thousand ranks has few of them."""

from __future__ import annotations

from collections.abc import Hashable

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
                doing=_doing(facts, first) if first is not None else "left nothing to look at",
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
        end = view.ended
        return f"ended by signal {end.signal}" if end.signal else f"ended with code {end.code}"
    return {"T": "stopped", "t": "traced", "D": "uninterruptible", "Z": "defunct"}.get(
        view.state, ""
    )


def _doing(facts: CaseFacts, view: RankView) -> str:
    """In a few words what a rank does: its open operation, else its place in the code."""
    calls = facts.graph.unfinished.get(view.rank, ())
    frame = view.user_frames[0] if view.user_frames else None
    if frame is None and calls and calls[0].stack:
        frame = view.code.innermost_user(calls[0].stack)  # type: ignore[assignment]
    place = f"{_base(frame.file)}:{frame.line} ({frame.function})" if frame is not None else ""
    if calls:
        return f"in {call_name(calls[0])}{f', {place}' if place else ''}"
    if place:
        return f"at {place}"
    last = facts.graph.last_calls.get(view.rank)
    return f"after {call_name(last)}" if last is not None else "nothing is known"


def _base(file: str) -> str:
    return file.rsplit("/", 1)[-1]
