"""Process groups that were created by some ranks only, or with different members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.evidence.model import RankView
from hanglab.analyzer.evidence.standing import Place
from hanglab.analyzer.heuristics.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status


def _creating(view: RankView) -> bool:
    return view.ended is None and view.standing.place is Place.GROUP_CREATION


def _members_asked_for(view: RankView) -> str:
    """The member list that the rank's latest new_group was called with."""
    if view.progress is None:
        return ""
    for operation in reversed(view.progress.operations):
        if operation.method == "new_group":
            return operation.splits
    return ""


def group_creation(known: Known) -> Iterator[Proposal]:
    """Some ranks wait inside ``new_group`` for others that never came, or came differently."""
    if not known.stuck:
        return
    creating = sorted(r for r, v in known.ranks.items() if _creating(v))
    if not creating:
        return
    asked = {r: _members_asked_for(known.ranks[r]) for r in creating}
    kinds = Counter(asked.values())
    elsewhere = sorted(r for r, v in known.ranks.items() if v.ended is None and r not in creating)
    if len(kinds) > 1 and "" not in kinds:
        common = kinds.most_common()
        usual, count = common[0]
        tied = len(common) > 1 and common[1][1] == count
        culprits = creating if tied else [r for r in creating if asked[r] != usual]
        words = "; ".join(f"rank {r} asked for {asked[r]}" for r in creating)
        confidence = 0.5 if tied else 0.95
        summary = (
            f"new_group was called with different members: {name_ranks(culprits)} "
            f"{'differ' if len(culprits) > 1 else 'differs'} from the rest."
        )
    elif elsewhere:
        # Every rank must call new_group, members or not; where most do not, the
        # few that do have taken a branch of their own.
        culprits = creating if len(creating) < len(elsewhere) else elsewhere
        # Ranks that merely wait for one of the others are no culprits.
        culprits = _roots(known, culprits) or culprits
        words = f"inside new_group: {name_ranks(creating)}; not: {name_ranks(elsewhere)}"
        confidence = 0.6 if len(creating) == len(elsewhere) else 0.95
        summary = (
            f"{name_ranks(creating).capitalize()} {'waits' if len(creating) == 1 else 'wait'} "
            f"inside new_group for {name_ranks(elsewhere)}, "
            f"{'which' if len(elsewhere) == 1 else 'who'} never entered it."
        )
    else:
        return
    location = known.ranks[culprits[0]].location()
    yield propose(
        known,
        Order.OUTSIDE,
        Cause.GROUP_CREATION,
        culprits,
        status=Status.HUNG,
        confidence=confidence,
        summary=summary,
        evidence=[
            Evidence("stack", r, f"inside new_group{name_line(known.ranks[r].location())}")
            for r in creating
        ]
        + [
            Evidence("stack", r, f"elsewhere{name_line(known.ranks[r].location())}")
            for r in elsewhere
        ]
        + [Evidence("boundary", None, words)],
        location=location,
        excludes=[*creating, *elsewhere],
    )


def _roots(known: Known, ranks: list[int]) -> list[int]:
    """Those of ``ranks`` that do not wait for another of them."""
    waiting = {wait.call.rank for wait in known.picture.waits if set(wait.on) & set(ranks)}
    return [rank for rank in ranks if rank not in waiting]
