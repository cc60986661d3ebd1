"""Split lists of all_to_all, and the first call in which they do not agree pair by pair.

What rank i sends to rank j must be as much as j expects from i.  The Python
boundary keeps these lists, and Flight Recorder from format 2.11 on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder.columns import Frame


@dataclass(frozen=True)
class SplitCall:
    """Counts to and from each rank of the group, in group order; ``line`` is its call's."""

    sends: tuple[int, ...]
    receives: tuple[int, ...]
    finished: bool
    line: Frame | None


def _calls(facts: CaseFacts) -> dict[tuple[str, int], dict[int, SplitCall]]:
    """Known split lists by group and sequence number."""
    calls: dict[tuple[str, int], dict[int, SplitCall]] = {}
    for rank, dump in facts.dumps.items():
        entries = dump.entries
        if entries is None:
            continue
        code = facts.ranks[rank].code
        for i in range(len(entries)):
            given = entries.arguments_at(i).splits
            if given is None:
                continue
            line = code.innermost_user(entries.stack_at(i))
            calls.setdefault((entries.group_at(i), int(entries.seq[i])), {})[rank] = SplitCall(
                given.sends, given.receives, bool(entries.retired[i]), line
            )
    return calls


def _disagreements(calls: dict[int, SplitCall], members: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs (sender, receiver) of global ranks that do not expect the same."""
    pairs = []
    place = {rank: i for i, rank in enumerate(members)}
    for sender, mine in calls.items():
        for receiver, theirs in calls.items():
            if sender == receiver or len(mine.sends) != len(members):
                continue
            if len(theirs.receives) != len(members):
                continue
            if mine.sends[place[receiver]] != theirs.receives[place[sender]]:
                pairs.append((sender, receiver))
    return pairs


def _contradicts_itself(call: SplitCall, place: int) -> bool:
    """True if a rank's two lists do not agree on what it sends to itself."""
    known = place < min(len(call.sends), len(call.receives))
    return known and call.sends[place] != call.receives[place]


def _left_own_pattern(
    rank: int, seq: int, name: str, all_calls: dict[tuple[str, int], dict[int, SplitCall]]
) -> bool:
    """True if the rank never had these lists in its earlier calls at the same line."""
    now = all_calls[name, seq][rank]
    earlier = {
        (calls[rank].sends, calls[rank].receives)
        for (group, number), calls in all_calls.items()
        if group == name and number < seq and rank in calls and calls[rank].line == now.line
    }
    return bool(earlier) and (now.sends, now.receives) not in earlier


@dataclass(frozen=True)
class Disagreement:
    """An all_to_all whose split lists do not agree; ``calls`` is by rank.

    ``pairs`` are (sender, receiver), ``suspects`` those in most of them.
    """

    group: str
    seq: int
    members: tuple[int, ...]
    calls: dict[int, SplitCall]
    pairs: list[tuple[int, int]]
    suspects: list[int]


def first_disagreement(facts: CaseFacts, *, finished: bool = False) -> Disagreement | None:
    """The first all_to_all whose lists do not agree.

    Of those that did not finish everywhere, or of those that did (``finished``).
    """
    all_calls = _calls(facts)
    for (name, seq), calls in sorted(all_calls.items()):
        if len(calls) < 2 or all(c.finished for c in calls.values()) is not finished:
            continue
        rank = next(iter(calls))
        members = facts.dumps[rank].members.get(name, ())
        if not set(calls) <= set(members):
            continue
        pairs = _disagreements(calls, members)
        if not pairs:
            continue
        counted = Counter(r for pair in pairs for r in pair)
        most = max(counted.values())
        suspects = sorted(r for r, n in counted.items() if n == most)
        unlike = [r for r in suspects if _contradicts_itself(calls[r], members.index(r))]
        if len(unlike) == 1:
            suspects = unlike
        if len(suspects) > 1:
            # One pair disagrees: the side that does otherwise than before is meant.
            changed = [r for r in suspects if _left_own_pattern(r, seq, name, all_calls)]
            suspects = changed or suspects
        return Disagreement(name, seq, members, calls, pairs, suspects)
    return None
