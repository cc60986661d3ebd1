"""Candidate faults by what undoes them: each makes of the Program as it was read one without it.

A fault was there if the Program without it runs on, and with it stops where the
dumps do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from hanglab.analyzer.hypotheses.frontier import Frontier
from hanglab.analyzer.hypotheses.last_operations import LastOperations, Step
from hanglab.analyzer.hypotheses.thresholds import TRIED_PROGRAMS
from hanglab.analyzer.program.program import UNKNOWN, Action, ProgramGroup
from hanglab.analyzer.program.simulation import agree
from hanglab.recorder.case.operations import op_of


class CandidateFault(str, Enum):
    """A fault of one rank, as it is injected into the Program of a sound job."""

    #: It stops, or does something else first, before its part of what others wait in.
    LATE = "late"
    #: It leaves an operation out.
    LEFT_OUT = "left_out"
    #: It has one operation too many.
    ADDED = "added"
    #: It gives an operation other arguments, or calls another one.
    CHANGED = "changed"
    #: It calls on a group what it was to call on another one.
    REGROUPED = "regrouped"
    #: It sends to, or receives from, another rank than the one that waits for it.
    MISDIRECTED = "misdirected"
    #: Its device stops in an operation after it did its part for the peers.
    DEVICE_STOPPED = "device_stopped"


def undo(
    last: LastOperations,
    fault: CandidateFault,
    culprits: Sequence[int],
    frontier: Frontier,
    at: tuple[int, int] | None,
) -> list[LastOperations]:
    """Programs without ``fault`` of the ranks at the places ``culprits``; [] if there is none.

    ``at`` is the group and the number at which they part from their peers, if they do.
    """
    programs = [last]
    for culprit in culprits:
        programs = [
            changed
            for program in programs
            for changed in _without_fault(program, fault, culprit, set(culprits), frontier, at)
        ][:TRIED_PROGRAMS]
    return programs


def _without_fault(
    last: LastOperations,
    fault: CandidateFault,
    culprit: int,
    culprits: set[int],
    frontier: Frontier,
    at: tuple[int, int] | None,
) -> list[LastOperations]:
    changed: LastOperations | None = None
    if fault is CandidateFault.DEVICE_STOPPED:
        changed = last  # it is the simulation that stops it
    elif fault is CandidateFault.LATE:
        changed = _with_its_parts(last, culprit, frontier)
    elif fault is CandidateFault.MISDIRECTED:
        served = _with_its_parts(last, culprit, frontier, in_order=True)
        changed = _without_open_message(served, culprit, last)
        ended = _with_one_for_another(last, culprit, frontier)
        return ended if changed is None else [changed, *ended]
    elif fault is CandidateFault.LEFT_OUT:
        if at is None:
            return _with_one_awaited(last, culprit, frontier)
        return _with_one_more(last, culprit, culprits, at)
    elif fault is CandidateFault.REGROUPED:
        return _on_group_awaited(last, culprit, frontier, at)
    elif fault is CandidateFault.ADDED:
        changed = _without_one(last, culprit, at)
        further: list[LastOperations] = []
        if at is None:
            further = [*_without_batch(last, culprit), *_without_a_later_message(last, culprit)]
        return further if changed is None else [changed, *further]
    elif at is not None:
        changed = _with_peers_call(last, culprit, culprits, at)
    return [] if changed is None else [changed]


def _peers_step(last: LastOperations, culprits: set[int], at: tuple[int, int]) -> Step | None:
    """Step that peers did under a number."""
    return next(
        (
            steps[place]
            for rank, steps in enumerate(last.steps)
            if rank not in culprits and (place := _place_of(steps, *at)) is not None
        ),
        None,
    )


def _with_peers_call(
    last: LastOperations, culprit: int, culprits: set[int], at: tuple[int, int]
) -> LastOperations | None:
    mine = list(last.steps[culprit])
    place, theirs = _place_of(mine, *at), _peers_step(last, culprits, at)
    if place is None or theirs is None:
        return None
    overlap = mine[place].action.overlap
    mine[place] = replace(theirs, action=replace(theirs.action, overlap=overlap), finished=False)
    return last.with_steps(culprit, mine)


def _with_one_more(
    last: LastOperations, culprit: int, culprits: set[int], at: tuple[int, int]
) -> list[LastOperations]:
    """Programs with what peers did under a number, before its own or further in front.

    That is, before messages, and what was not finished of other groups.
    """
    mine = list(last.steps[culprit])
    place, theirs = _place_of(mine, *at), _peers_step(last, culprits, at)
    if place is None or theirs is None:
        return []
    more = replace(theirs, action=replace(theirs.action, overlap=False), finished=False)
    places = [place]
    while places[-1] and _may_come_before(mine[places[-1] - 1], at[0]):
        places.append(places[-1] - 1)
    # Of many the nearest and the farthest: there nothing of other groups holds it up.
    places[TRIED_PROGRAMS - 1 :] = places[-1:] if len(places) >= TRIED_PROGRAMS else []
    return [last.with_steps(culprit, [*mine[:one], more, *mine[one:]]) for one in places]


def _may_come_before(step: Step, group: int) -> bool:
    return step.number is None or (not step.finished and step.action.group != group)


def _with_one_awaited(
    last: LastOperations, culprit: int, frontier: Frontier
) -> list[LastOperations]:
    """Programs with one that a peer waits in, before all that the rank has not finished itself."""
    mine = list(last.steps[culprit])
    place = next((i for i, step in enumerate(mine) if not step.finished), len(mine))
    begun, found = frontier.begun(culprit), dict[object, Step]()
    for rank, steps in enumerate(last.steps):
        for index, step in enumerate(steps):
            action, members = step.action, last.groups[step.action.group].members
            if rank == culprit or culprit not in members or not frontier.is_open(rank, index):
                continue
            if step.number is None:
                if action.peer == members.index(culprit):
                    found.setdefault((rank, index), _other_half(last, rank, step))
            elif (action.group, step.number) not in begun or _calls_another(mine, step):
                part = replace(step, action=replace(action, overlap=False))
                found.setdefault((action.group, step.number), part)
    return [
        last.with_steps(culprit, [*mine[:place], part, *mine[place:]]) for part in found.values()
    ]


def _calls_another(steps: Sequence[Step], theirs: Step) -> bool:
    """True if the rank has another call, or other arguments, under the number of a peer's."""
    assert theirs.number is not None
    place = _place_of(steps, theirs.action.group, theirs.number)
    if place is None:
        return False
    mine, other = steps[place].action, theirs.action
    return (mine.op, mine.numel, mine.dtype) != (other.op, other.numel, other.dtype)


def _without_one(
    last: LastOperations, culprit: int, at: tuple[int, int] | None
) -> LastOperations | None:
    """Without the operation under a number, or else without the first that is unfinished."""
    mine = list(last.steps[culprit])
    if at is not None:
        place = _place_of(mine, *at)
    else:
        place = next((i for i, step in enumerate(mine) if not step.finished), None)
    if place is None:
        return None
    if at is None and _is_matched(last, culprit, mine[place]):
        return last  # That fault it is not.
    del mine[place]
    return last.with_steps(culprit, mine)


def _is_matched(last: LastOperations, culprit: int, step: Step) -> bool:
    """True if each message of the rank like an unfinished one has its other half at the peer.

    None of them is too many then: without it the other half would have none.  What the peer has
    behind a message that the rank has yet to issue may be of a later round.
    """
    peer = step.action.peer
    members = last.groups[step.action.group].members
    if step.number is not None or peer is None or not 0 <= peer < len(members):
        return False
    if not 0 <= members[peer] < len(last.steps):
        return False
    half = _other_half(last, culprit, step).action
    ahead, back = replace(step.action, peer=half.peer), replace(half, peer=peer)
    mine, theirs = (
        [one.action for one in last.steps[place] if not one.finished and one.number is None]
        for place in (culprit, members[peer])
    )
    owed, found = sum(_is_alike(one, back) for one in mine), 0
    for one in theirs:
        found += _is_alike(one, half)
        owed -= _is_alike(one, ahead)
        if owed < 0:
            break
    return sum(_is_alike(one, step.action) for one in mine) <= found


def _without_batch(last: LastOperations, culprit: int) -> list[LastOperations]:
    """The program without the batch of the rank's first unfinished operation, if it is of one."""
    own = last.steps[culprit]
    batch = next((step.action.batch for step in own if not step.finished), 0)
    left = [step for step in own if step.action.batch != batch]
    return [last.with_steps(culprit, left)] if batch and len(own) - len(left) > 1 else []


def _without_a_later_message(last: LastOperations, culprit: int) -> list[LastOperations]:
    """Programs without a message that the rank has yet to end, one for each peer and direction.

    One too many that has ended has done so with the other half of a later one.
    """
    own = last.steps[culprit]
    left = [step for step in own if step.number is None and not step.finished]
    chosen: dict[tuple[str, int, int | None], Step] = {}
    for step in left:
        chosen.setdefault((step.action.op, step.action.group, step.action.peer), step)
    return [
        last.with_steps(culprit, [one for one in own if one is not step])
        for step in chosen.values()
        if step is not left[0] and not _is_matched(last, culprit, step)
    ]


def _with_one_for_another(
    last: LastOperations, culprit: int, frontier: Frontier
) -> list[LastOperations]:
    """Programs with a message that a peer waits in, and one less to whom it went instead.

    That one has ended with the other half of what the rank has yet to do with its peer.
    """
    own = last.steps[culprit]
    found = []
    for program in _with_one_awaited(last, culprit, frontier):
        (added,) = [step for step in program.steps[culprit] if all(step is not one for one in own)]
        seen: set[tuple[int, int | None]] = set()
        for step in own:
            key = step.action.group, step.action.peer
            other = step.action.op == added.action.op and step.action.peer != added.action.peer
            if step.number is None and not step.finished and other and key not in seen:
                seen.add(key)
                left = [one for one in program.steps[culprit] if one is not step]
                found.append(program.with_steps(culprit, left))
    return found[:TRIED_PROGRAMS]


def _are_alike(one: Action, other: Action, groups: Sequence[ProgramGroup]) -> bool:
    """True if two calls are one but for their groups: of as many members, with one size."""
    if one.group == other.group:
        return False
    members = {len(groups[action.group].members) for action in (one, other)}
    actions = [replace(action, root=None) for action in (one, other)]
    if len(members) > 1:
        actions = [replace(action, numel=UNKNOWN) for action in actions]
    return agree(actions)


def _on_group_awaited(
    last: LastOperations, culprit: int, frontier: Frontier, at: tuple[int, int] | None
) -> list[LastOperations]:
    """Programs with one that a peer waits in on another group in place of the like of its own.

    Of that at which the rank differs, or of one that nobody has met yet.
    """
    own = last.steps[culprit]
    first: dict[int, int] = {}
    for place, step in enumerate(own):
        if not step.finished:
            first.setdefault(step.action.group, place)
    met = _place_of(own, *at) if at is not None else None
    found = []
    for place in dict.fromkeys([*([] if met is None else [met]), *first.values()]):
        sound = last.with_steps(culprit, [*own[:place], *own[place + 1 :]])
        found += [
            program
            for program in _with_one_awaited(sound, culprit, frontier)
            for step in program.steps[culprit]
            if not any(step is one for one in own)
            and _are_alike(own[place].action, step.action, last.groups)
        ]
    return found[:TRIED_PROGRAMS]


def _place_of(steps: Sequence[Step], group: int, number: int) -> int | None:
    found = (
        place
        for place, step in enumerate(steps)
        if step.action.group == group and step.number == number
    )
    return next(found, None)


def _without_open_message(
    served: LastOperations, culprit: int, last: LastOperations
) -> LastOperations | None:
    """Without the first unfinished send or receive of those that its dump has (in ``last``)."""
    known = last.steps[culprit]
    message = next((s for s in known if s.number is None and not s.finished), None)
    if message is None:
        return None
    if _is_matched(last, culprit, message):
        return last  # That fault it is not.
    left = [step for step in served.steps[culprit] if step is not message]
    return served.with_steps(culprit, left) if len(left) < len(served.steps[culprit]) else None


def _with_its_parts(
    last: LastOperations, culprit: int, frontier: Frontier, *, in_order: bool = False
) -> LastOperations:
    """The rank does its part of what others wait in before it does what it waits in itself.

    ``in_order``: its messages that are queued behind that stay there.
    """
    mine = list(last.steps[culprit])
    begun = frontier.begun(culprit)
    wanted: dict[tuple[int, int], Action] = {}
    messages: list[Step] = []
    for rank, steps in enumerate(last.steps):
        if rank == culprit:
            continue
        for index, step in enumerate(steps):
            action = step.action
            members = last.groups[action.group].members
            if step.finished or culprit not in members or not frontier.is_open(rank, index):
                continue
            if step.number is None:
                if action.peer in (None, members.index(culprit)):
                    messages.append(_other_half(last, rank, step))
            elif (action.group, step.number) not in begun:
                wanted.setdefault((action.group, step.number), action)
    messages = _not_there_yet(mine, messages, frontier, culprit, in_order)
    held = {
        step.action.group
        for index, step in enumerate(mine)
        if step.number is not None and frontier.is_open(culprit, index)
    }
    first: list[Step] = []
    later: list[Step] = []
    for (group, number), action in sorted(wanted.items(), key=lambda item: item[0]):
        own = _place_of(mine, group, number)
        step = mine.pop(own) if own is not None else Step(action, number, False)
        # It is the rank's part for others, and holds it up no longer than it takes them to come.
        part = replace(step, action=replace(step.action, overlap=True), finished=True)
        (later if group in held else first).append(part)
    before = next((i for i, s in enumerate(mine) if not s.finished), len(mine))
    if before < len(mine) and first and not mine[before].action.overlap:
        # What it calls behind them waits for them.
        mine[before] = replace(mine[before], action=replace(mine[before].action, joins=True))
        first = [replace(part, finished=False) for part in first]
    mine[before:before] = [*messages, *first]
    return last.with_steps(culprit, [*mine, *later])


def _other_half(last: LastOperations, rank: int, step: Step) -> Step:
    action = step.action
    me = last.groups[action.group].members.index(rank)
    op = op_of(action.op).other_half
    return Step(replace(action, op=op, peer=me, overlap=True, batch=0), None, True)


def _not_there_yet(
    mine: list[Step],
    messages: Sequence[Step],
    frontier: Frontier,
    culprit: int,
    in_order: bool,
) -> list[Step]:
    """Messages that the rank has not entered; of its own that are queued, without the first."""
    entered = {id(s) for i, s in enumerate(mine) if in_order or frontier.is_open(culprit, i)}
    own = [step for step in mine if step.number is None and not step.finished]
    found = []
    for message in messages:
        same = next((step for step in own if _is_alike(step.action, message.action)), None)
        if same is not None:
            own.remove(same)
            if id(same) in entered:
                continue
            mine[:] = [step for step in mine if step is not same]
        found.append(message)
    return found


def _is_alike(a: Action, b: Action) -> bool:
    return (a.op, a.group, a.peer) == (b.op, b.group, b.peer)
