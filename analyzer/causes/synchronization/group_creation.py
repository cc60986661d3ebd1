"""Process groups that were created by some ranks only, in another order, or with other members.

A group that is being created has no entry in any buffer.  The stack says who
waits inside ``new_group``, the boundary which members each rank asked for, call
by call.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.launches import launched_line
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CANDIDATES, SHOWN, TIED
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import CALLED_DIFFERENTLY, name_line, name_ranks
from hanglab.recorder.case.backends import backends_in
from hanglab.recorder.case.records import GroupRecord

Calls = dict[int, list[str]]


@detector
def group_creation(facts: CaseFacts) -> Iterator[Proposal]:
    """Some ranks wait inside ``new_group`` for others that never came, or came differently."""
    if not facts.stuck:
        return
    alive = {r: v for r, v in facts.ranks.items() if v.ended is None}
    creating = sorted(r for r, v in alive.items() if v.position.place is StackPlace.GROUP_CREATION)
    if not creating:
        yield from _joining(facts, alive)
        yield from _made_of_others(facts, alive)
        return
    calls = {r: _asked_for(v) for r, v in alive.items()}
    different = _different(calls)
    if different is not None:
        culprits, tied, words = different
        yield _proposal(
            facts,
            creating,
            culprits,
            TIED if tied else SHOWN,
            f"{CALLED_DIFFERENTLY}: {words}.",
        )
        return
    absent = _absent(facts, calls, creating)
    if not absent:
        return
    # Where most do not create the group, the few that do took a branch of their own.
    minority = creating if len(creating) < len(absent) else absent
    culprits = _roots(facts, minority) or minority
    yield _proposal(
        facts,
        creating,
        culprits,
        CANDIDATES if len(creating) == len(absent) else SHOWN,
        f"{name_ranks(creating).capitalize()} {'waits' if len(creating) == 1 else 'wait'} inside "
        f"new_group for {name_ranks(absent)}, which never entered it.",
    )


def _joining(facts: CaseFacts, alive: dict[int, RankView]) -> Iterator[Proposal]:
    """Ranks whose first operation makes the communicator of a group that a member never made.

    Where communicators are made late, ``new_group`` waits for nobody, and the host waits in the
    group's first operation, of which no buffer has an entry yet.
    """
    held = {rank: group for rank, view in alive.items() if (group := _first_use(view)) is not None}
    different = _made_differently(alive, held)
    if different is not None:
        culprits, words = different
        yield _proposal(
            facts,
            sorted(held),
            culprits,
            SHOWN,
            f"{CALLED_DIFFERENTLY}: {words}.",
            "in the group's first operation",
        )
        return
    for name in sorted({group.id for group in held.values()}):
        joining = sorted(rank for rank, group in held.items() if group.id == name)
        members = held[joining[0]].ranks
        absent = [
            rank
            for rank in members
            if rank in alive
            and alive[rank].groups  # else nothing is known of them
            and all(one.id != name for one in alive[rank].groups)
        ]
        if 0 < len(absent) <= len(joining):  # of more, the ones who wait may be odd
            first = joining[0]
            what = held[first].description or name
            yield _proposal(
                facts,
                joining,
                absent,
                CANDIDATES if len(absent) == len(joining) else SHOWN,
                f"{name_ranks(joining).capitalize()} {'waits' if len(joining) == 1 else 'wait'} in "
                f"the first operation of group {what} for {name_ranks(absent)}, which never made "
                "the group.",
                "in the group's first operation",
            )


def _made_differently(
    alive: dict[int, RankView], held: dict[int, GroupRecord]
) -> tuple[list[int], str] | None:
    """Ranks that made a group in which peers wait of other members than those, and the calls."""
    different = _different({rank: _asked_for(view) for rank, view in alive.items()})
    if different is None or different[1]:
        return None
    culprits, _, words = different
    waiting = [group for rank, group in held.items() if rank not in culprits]
    if waiting and all(_made_unlike(alive[rank], waiting) for rank in culprits):
        return culprits, words
    return None


def _made_unlike(view: RankView, groups: Sequence[GroupRecord]) -> bool:
    """True if the rank has one of the groups, by its name, with other members."""
    return any(
        one.id == group.id and sorted(one.ranks) != sorted(group.ranks)
        for one in view.groups
        for group in groups
    )


def _made_of_others(facts: CaseFacts, alive: dict[int, RankView]) -> Iterator[Proposal]:
    """Ranks that have made a group in which a peer waits of other members than that peer did."""
    calls = {rank: _asked_for(view) for rank, view in alive.items()}
    different = _different(calls)
    if different is None:
        return
    culprits, tied, words = different
    for wait in facts.graph.waits:
        group = wait.call.group
        unlike = [
            rank
            for rank in culprits
            if any(
                one.id == group.name and sorted(one.ranks) != sorted(group.members)
                for one in alive[rank].groups
            )
        ]
        # Where equally many did either, those who share its name with it are to meet nobody else.
        apart = tied and wait.call.rank in culprits and bool(unlike)
        if apart or (not tied and wait.call.rank not in culprits and unlike == culprits):
            # What waits there is the consequence, whatever it looks like.
            made = _proposal(
                facts,
                [wait.call.rank],
                culprits,
                TIED if tied else 0.9,
                f"{CALLED_DIFFERENTLY}: {words}.",
                "in an operation of the group",
            )
            if tied:
                made.finding.evidence.insert(0, Evidence("boundary", None, words))
            yield replace(made, failure_on_record=True)
            return


def _first_use(view: RankView) -> GroupRecord | None:
    """The group in whose first operation a rank's host is held, where that makes its communicator.

    None where the operation has an entry: then the communicator was there.
    """
    if view.progress is None or not view.progress.operations:
        return None
    last = view.progress.operations[-1]
    group = next((one for one in view.groups if one.id == last.group), None)
    if group is None or last.returned_ns is not None or last.method == "new_group":
        return None
    if not any(backend.enqueued for backend in backends_in(group.backend)):
        return None
    return group if all(one.group != last.group for one in view.progress.operations[:-1]) else None


def _asked_for(view: RankView) -> list[str]:
    """Members that each of the rank's calls of new_group asked for, in order."""
    if view.progress is None:
        return []
    return [o.members for o in view.progress.operations if o.method == "new_group"]


def _different(calls: Calls) -> tuple[list[int], bool, str] | None:
    """(culprits, whether the sides are equally many, words) at the first call that differs."""
    longest = max((len(mine) for mine in calls.values()), default=0)
    for place in range(longest):
        asked = {r: mine[place] for r, mine in calls.items() if len(mine) > place}
        common = Counter(asked.values()).most_common()
        if len(common) < 2:
            continue
        usual, count = common[0]
        tied = common[1][1] == count
        culprits = sorted(r for r, members in asked.items() if tied or members != usual)
        words = "; ".join(
            f"{name_ranks([r for r, m in asked.items() if m == members])} asked for {members}"
            for members, _ in common[:4]
        )
        return culprits, tied, f"as call number {place + 1}, {words}"
    return None


def _members(text: str, everybody: Sequence[int]) -> list[int]:
    if text == "all":
        return list(everybody)
    try:
        members = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return list(everybody)
    return [rank for rank in members if isinstance(rank, int)]


def _absent(facts: CaseFacts, calls: Calls, creating: Sequence[int]) -> list[int]:
    """Ranks that the waiting calls need and that have not made that call."""
    first = creating[0]
    if not calls[first]:
        # Nothing was recorded at the boundary: every rank must call new_group.
        return [r for r in calls if r not in creating]
    place = min(len(calls[r]) for r in creating)
    needed: set[int] = set()
    for rank in creating:
        if len(calls[rank]) == place:
            needed.update(_members(calls[rank][place - 1], sorted(facts.ranks)))
    missing = sorted(r for r in calls if len(calls[r]) < place)
    # One that waits for a group that it will not be in: all are needed, whoever is in it.
    if needed and any(r not in needed for r in creating if len(calls[r]) == place):
        return missing
    return [r for r in missing if r in needed]


def _roots(facts: CaseFacts, ranks: list[int]) -> list[int]:
    """Members of ``ranks`` that do not wait for another of them."""
    waiting = {wait.call.rank for wait in facts.graph.waits if set(wait.on) & set(ranks)}
    return [rank for rank in ranks if rank not in waiting]


def _proposal(
    facts: CaseFacts,
    creating: list[int],
    culprits: list[int],
    confidence: float,
    summary: str,
    where: str = "inside new_group",
) -> Proposal:
    elsewhere = [r for r, v in facts.ranks.items() if v.ended is None and r not in creating]
    return propose(
        facts,
        Cause.GROUP_CREATION,
        culprits,
        status=Status.HUNG,
        confidence=confidence,
        summary=summary,
        evidence=[
            Evidence(
                "stack",
                r,
                (where if r in creating else "not in new_group")
                + name_line(facts.ranks[r].location()),
            )
            for r in sorted([*creating, *elsewhere])
        ],
        location=launched_line(facts, culprits[0]) or facts.ranks[culprits[0]].location(),
    )
