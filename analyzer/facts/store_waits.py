"""A rank that waits or polls for a key of a Store, and the rank that was to set it by what it had
set."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.polls import polls
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import Poll, StoreKeyUse

_NUMBER = re.compile(r"(\d+)")
#: Times that a key of one kind has to have been set before a next one is due.
_FEWEST_USES = 3


@dataclass(frozen=True)
class StoreWait:
    """``setter`` is the one rank that set the keys before; None where none or several did.

    ``instead`` is the key that the setter set when it was this one's turn, "" if it set none.
    ``poll`` tells how often it asks, where it does so again and again.
    """

    key: str
    setter: int | None
    #: The setter had its time to set it, went on without, and the waiter asks when it used to.
    left_out: bool
    poll: Poll | None = None
    #: It makes a store at the address ``key``, and waits for who else is to come there.
    joins: bool = False
    #: No rank sets it: each sets the one with its own number, and none has that of this one; or
    #: its numbers are those of a key that is set, ``instead``, in another spelling.
    of_nobody: bool = False
    instead: str = ""
    #: Each rank but the setter has set the key with its own number.
    own_number: bool = False


@dataclass(frozen=True)
class KeyUse:
    """One use of a key by user code: it was set, or waited for, in a call or by asking in turns.

    ``operations_after`` is how many operations the rank has begun since.
    """

    key: str
    sets: bool
    polls: bool = False
    operations_after: int = 0


def awaited_key(view: RankView) -> KeyUse | None:
    """The key that a line of user code waits for; None too where torch itself waits for one."""
    mine, poll = _awaited(view)
    if mine is None or mine.kind == "join":
        return None
    if poll is None and not view.position.innermost_is_user:
        return None
    return KeyUse(mine.prefix + mine.key, sets=False, polls=poll is not None)


def earlier_keys(facts: CaseFacts) -> dict[int, list[KeyUse]]:
    """Uses, by rank and in their order, that tell who left out the key that others wait for."""
    found: dict[int, list[KeyUse]] = {}
    for rank, view in facts.ranks.items():
        mine, poll = _awaited(view)
        if mine is None or awaited_key(view) is None:
            continue
        setters = _setters(facts, view, mine)
        if len(setters) != 1:
            continue
        found[rank] = _latest_uses(view, mine, polls=poll is not None)[:-1]
        ((setter, use),) = setters.items()
        found.setdefault(setter, _latest_uses(facts.ranks[setter], use))
    return found


def _latest_uses(view: RankView, use: StoreKeyUse, *, polls: bool = False) -> list[KeyUse]:
    """Those of which it is known when, oldest first: numbers in keys grew by as much each time."""
    if view.progress is None:
        return []
    before, latest = _NUMBER.split(use.earlier), _NUMBER.split(use.key)
    total, times = view.progress.operations_total, use.operations
    found = []
    for ago, operations in zip(range(len(times) - 1, -1, -1), times, strict=True):
        key = use.key
        if ago and len(before) == len(latest):
            parts = zip(before, latest, strict=True)
            key = "".join(
                str(int(new) - ago * (int(new) - int(old))) if old != new else new
                for old, new in parts
            )
        found.append(KeyUse(use.prefix + key, use.kind == "set", polls, total - operations))
    return found


def store_wait(facts: CaseFacts, view: RankView) -> StoreWait | None:
    """The wait of a rank's main thread for a key; None if it waits for none that is known."""
    mine, poll = _awaited(view)
    if mine is None:
        return None
    if mine.kind == "join":
        return StoreWait(mine.key, None, False, joins=True)
    mine = _with_a_key_not_set(facts, mine)
    spelt = _in_another_spelling(facts, mine) or _asked_for_by_others(facts, view, mine)
    if spelt:
        return StoreWait(mine.key, None, False, poll, of_nobody=True, instead=spelt)
    setters = _setters(facts, view, mine)
    if len(setters) != 1:
        by_number = _set_by_number(facts, mine)
        if by_number is None and (other := _set_in_its_turn(facts, mine)) is not None:
            return StoreWait(mine.key, other[0], True, poll, instead=other[1])
        if by_number is None:
            return StoreWait(mine.key, None, False, poll)
        own, place = by_number
        number = int(_NUMBER.findall(mine.key)[place])
        if number not in facts.ranks or (number in own and number == view.rank):
            return StoreWait(mine.key, None, False, poll, of_nobody=number not in facts.ranks)
        if number not in own:
            # Whoever waits for it, too, had its turn to set it.
            waits, _ = _awaited(facts.ranks[number])
            passed = waits is not None and mine.key in (waits.key, *waits.others)
            return StoreWait(mine.key, number, passed, poll, own_number=True)
        instead = _set_instead(own, number, mine.key, place)
        return StoreWait(mine.key, number, bool(instead), poll, instead=instead)
    ((rank, use),) = setters.items()
    return StoreWait(mine.key, rank, _is_overdue(facts.ranks[rank], use, mine), poll)


def _with_a_key_not_set(facts: CaseFacts, wait: StoreKeyUse) -> StoreKeyUse:
    """The wait for the first of its keys that no rank has set; the last where nobody knows."""
    uses = [
        use
        for view in facts.ranks.values()
        for use in view.read(files.STORE_KEYS)
        if (use.kind, use.prefix) == ("set", wait.prefix)
    ]
    found = {key for use in uses for key in (use.key, use.earlier)}
    # Of keys of one pattern the latest two are kept.
    forgotten = {_pattern(use.key) for use in uses if use.count > 2}
    for key in (*wait.others, wait.key) if not facts.inputs.missing_ranks else ():
        if key not in found and _pattern(key) not in forgotten:
            return msgspec.structs.replace(wait, key=key)
    return wait


def _in_another_spelling(facts: CaseFacts, wait: StoreKeyUse) -> str:
    """A key that is set, of the same numbers, of which all ranks write some otherwise; "" if none.

    Where the rank has had keys in its own spelling, or somebody sets such, that one is right.
    """
    if wait.count > 1 or facts.inputs.missing_ranks:
        return ""
    uses = [
        use
        for view in facts.ranks.values()
        for use in view.read(files.STORE_KEYS)
        if (use.kind, use.prefix, _pattern(use.key)) == ("set", wait.prefix, _pattern(wait.key))
    ]
    if len(uses) < 2:
        return ""  # Of two nobody knows who has it wrong.
    keys = sorted({key for use in uses for key in (use.key, use.earlier) if key})
    mine = _NUMBER.findall(wait.key)
    for key in keys:
        theirs = _NUMBER.findall(key)
        if key == wait.key or any(
            a.lstrip("0") != b.lstrip("0") for a, b in zip(mine, theirs, strict=True)
        ):
            continue
        places = [place for place, text in enumerate(mine) if text != theirs[place]]
        if all(
            _is_padded(_NUMBER.findall(other)[place]) == _is_padded(theirs[place])
            for other in keys
            for place in places
        ):
            return key
    return ""


def _asked_for_by_others(facts: CaseFacts, view: RankView, wait: StoreKeyUse) -> str:
    """The key of a rank's turn that is set, and that others who wait for such got; "" if none.

    In all turns before they have asked for one key.
    """

    def turn(use: StoreKeyUse) -> tuple[str, str, int]:
        return use.prefix, use.earlier, use.count

    uses = [
        (rank, use)
        for rank, other in facts.ranks.items()
        if rank != view.rank
        for use in other.read(files.STORE_KEYS)
        if turn(use) == turn(wait) and use.earlier and not use.waiting
    ]
    keys = {use.key for _, use in uses}
    kinds = {kind: {rank for rank, use in uses if use.kind == kind} for kind in ("set", "wait")}
    if len(keys) != 1 or wait.key in keys or facts.inputs.missing_ranks:
        return ""
    # Of two alone nobody knows who has it wrong.
    told = kinds["set"] and kinds["wait"] - kinds["set"]
    return keys.pop() if told else ""


def _set_in_its_turn(facts: CaseFacts, wait: StoreKeyUse) -> tuple[int, str] | None:
    """The one rank that sets such keys, and the one that it set when others came to wait for this.

    Of several: of one nobody knows which of the two has the key wrong.
    """
    uses = {
        rank: use
        for rank, view in facts.ranks.items()
        for use in view.read(files.STORE_KEYS)
        if (use.kind, use.prefix, _pattern(use.key)) == ("set", wait.prefix, _pattern(wait.key))
    }
    waits = [_awaited(view)[0] for view in facts.ranks.values()]
    alike = [w for w in waits if w is not None and (w.prefix, w.key) == (wait.prefix, wait.key)]
    if len(uses) != 1 or len(alike) < 2 or facts.inputs.missing_ranks:
        return None
    ((rank, use),) = uses.items()
    in_turn = use.operations[-1:] == wait.operations[-1:] and use.earlier == wait.earlier != ""
    return (rank, use.key) if in_turn and use.key != wait.key else None


def _is_padded(number: str) -> bool:
    return len(number) > 1 and number.startswith("0")


def _setters(facts: CaseFacts, view: RankView, mine: StoreKeyUse) -> dict[int, StoreKeyUse]:
    """Ranks that set such keys so far, and how, by what ``mine`` would be the next one of."""
    return {
        rank: use
        for rank, other in facts.ranks.items()
        if rank != view.rank
        for use in other.read(files.STORE_KEYS)
        if (use.kind, use.prefix) == ("set", mine.prefix) and _comes_next(use, mine)
    }


def words_for_key_of_nobody(facts: CaseFacts, view: RankView) -> str:
    """Words for the wait of a rank for a key that no rank is there to set; "" if it is not."""
    wait = store_wait(facts, view)
    if wait is None or not wait.of_nobody:
        return ""
    verb = "polls" if wait.poll is not None else "waits"
    others = (
        f"{wait.instead!r} is set" if wait.instead else "each rank sets the one with its own number"
    )
    return f"it {verb} for the store's key {wait.key!r}, which nobody sets: {others}"


def _set_by_number(
    facts: CaseFacts, wait: StoreKeyUse
) -> tuple[dict[int, StoreKeyUse], int] | None:
    """The use by which each rank sets keys like this one, and the place of its own number in them.

    None unless all ranks do, or all but the one of the awaited number, and one place alone holds
    their numbers.
    """
    uses = {
        rank: use
        for rank, view in facts.ranks.items()
        for use in view.read(files.STORE_KEYS)
        if (use.kind, use.prefix, _pattern(use.key)) == ("set", wait.prefix, _pattern(wait.key))
    }
    lacking = facts.ranks.keys() - uses.keys()
    if len(uses) < 2 or len(lacking) > 1 or facts.inputs.missing_ranks:
        return None
    numbers = {rank: _NUMBER.findall(use.key) for rank, use in uses.items()}
    places = [
        place
        for place in range(len(_NUMBER.findall(wait.key)))
        if all(int(mine[place]) == rank for rank, mine in numbers.items())
        and lacking <= {int(_NUMBER.findall(wait.key)[place])}
    ]
    return (uses, places[0]) if len(places) == 1 else None


def _set_instead(own: dict[int, StoreKeyUse], setter: int, key: str, place: int) -> str:
    """The key that the setter set as often as all others set theirs of this turn; "" if none."""

    def without_own(of: str) -> list[str]:
        numbers = _NUMBER.findall(of)
        return numbers[:place] + numbers[place + 1 :]

    mine = own[setter]
    others = [use for rank, use in own.items() if rank != setter]
    in_turn = all(without_own(use.key) == without_own(key) for use in others)
    behind = any(mine.count < use.count for use in others)
    return "" if mine.key == key or behind or not in_turn else mine.key


def _awaited(view: RankView) -> tuple[StoreKeyUse | None, Poll | None]:
    """Key that the main thread waits for in a call, or asks for again and again in vain."""
    uses = view.read(files.STORE_KEYS)
    waiting = next((use for use in uses if use.waiting), None)
    if waiting is not None:
        return waiting, None
    for poll in polls(view):
        if poll.kind == "key" and not poll.found:
            for use in uses:
                if (use.kind, use.prefix, use.key) == ("check", poll.prefix, poll.what):
                    return use, poll
    return None, None


def _comes_next(use: StoreKeyUse, wait: StoreKeyUse) -> bool:
    """True if the key is the next one of a rank that sets such keys.

    Whoever has set a single one set that which the same rank had waited for before.
    """
    if use.count > 1:
        return _next_key(use) == wait.key
    return wait.count > 1 and use.key == wait.earlier and _pattern(use.key) == _pattern(wait.key)


def _pattern(key: str) -> str:
    return _NUMBER.sub("#", key)


def _next_key(use: StoreKeyUse) -> str:
    """The key that goes on from the latest two: numbers that grew grow as much again."""
    before, latest = _NUMBER.split(use.earlier), _NUMBER.split(use.key)
    return "".join(
        str(2 * int(new) - int(old)) if old != new else new
        for old, new in zip(before, latest, strict=True)
    )


def _is_overdue(setter: RankView, use: StoreKeyUse, wait: StoreKeyUse) -> bool:
    """True if both used the keys once in so many operations, and only the setter does no more."""
    strides = {b - a for a, b in pairwise(use.operations)}
    if setter.progress is None or len(use.operations) < _FEWEST_USES or len(strides) != 1:
        return False
    # One that is waited for and then read was used twice between two operations.
    asked = {b - a for a, b in pairwise(wait.operations) if a != b}
    due = use.operations[-1] + strides.pop()
    return asked == {due - use.operations[-1]} and setter.progress.operations_total > due
