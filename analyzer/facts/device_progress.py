"""Operations that the devices of a group have begun (with TORCH_NCCL_ENABLE_TIMING)."""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder.columns import State
from hanglab.analyzer.matching.calls import Call


def states(facts: CaseFacts, call: Call) -> dict[int, State]:
    """Each member's state of an operation; members of which nothing is known are left out."""
    found: dict[int, State] = {}
    for rank in call.group.members:
        dump = facts.dumps.get(rank)
        if dump is None or dump.entries is None or call.seq is None:
            continue
        entries = dump.entries
        mine = entries.in_group(call.group.name) & (entries.seq == call.seq) & ~entries.is_p2p
        values = entries.state[mine]
        if len(values):
            found[rank] = State(int(values[-1]))
    return found


def all_started(facts: CaseFacts, call: Call) -> bool:
    """True if the devices of all members are known to be inside the operation."""
    known = states(facts, call)
    return set(known) == set(call.group.members) and set(known.values()) == {State.STARTED}


def unstarted_ranks(facts: CaseFacts, call: Call) -> list[int]:
    """Members, fewer than the others, whose devices have not begun what all others' have.

    [] where one of them is not known: without timing no buffer tells of a beginning.
    """
    known = states(facts, call)
    if set(known) != set(call.group.members):
        return []
    started = [rank for rank, state in known.items() if state is State.STARTED]
    scheduled = [rank for rank, state in known.items() if state is State.SCHEDULED]
    if len(started) + len(scheduled) != len(known) or len(started) < len(scheduled):
        return []
    return sorted(scheduled)
