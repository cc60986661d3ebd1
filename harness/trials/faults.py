"""Faults of trials: each a change of a program, or a host or device that stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from hanglab.harness.trials.player import Play, Stops, play
from hanglab.harness.trials.programs import ANY, Batch, Issue, Program, Step, Wait, issues_of

#: What may go wrong, and the causes by which a verdict may call it.  Dumps seldom tell why a
#: rank stopped, so a stop has no list of its own: it may be called all but what it cannot be.
#: Who hangs in its next call has left one out, or swapped the two: the same until it goes on.
#: Who makes a call on another group has left it out on the one, and has one too many on the other.
CAUSES: dict[str, frozenset[str]] = {
    "host_stop": frozenset({"missing_rank", "p2p_unmatched", "uneven_inputs", "rank0_work"}),
    "device_stop": frozenset({"gpu_fault", "fabric_stalled", "host_sync", "missing_rank"}),
    "skip": frozenset({
        "skipped_collective", "collective_mismatch", "missing_rank", "uneven_inputs",
        "p2p_unmatched", "p2p_deadlock", "size_mismatch", "split_mismatch", "group_order",
    }),
    "extra": frozenset({
        "collective_mismatch", "skipped_collective", "missing_rank", "uneven_inputs",
        "p2p_unmatched", "p2p_deadlock", "size_mismatch", "split_mismatch", "group_order",
    }),
    "size": frozenset({"size_mismatch", "split_mismatch", "p2p_unmatched"}),
    "dtype": frozenset({"dtype_mismatch", "p2p_unmatched"}),
    "kind": frozenset({"collective_mismatch"}),
    "root": frozenset({"root_mismatch", "fabric_stalled"}),
    "splits": frozenset({"split_mismatch", "size_mismatch", "fabric_stalled"}),
    # Left out for the one peer, and one too many for the other: there it may meet another size.
    "peer": frozenset({
        "p2p_unmatched", "p2p_deadlock", "missing_rank", "skipped_collective", "size_mismatch",
    }),
    "order": frozenset({
        "group_order", "p2p_deadlock", "collective_mismatch", "p2p_unmatched", "skipped_collective",
    }),
    "wrong_group": frozenset({
        "collective_mismatch", "skipped_collective", "p2p_unmatched", "group_order", "missing_rank",
        "p2p_deadlock", "size_mismatch",
    }),
    "drift": frozenset({"group_creation", "group_order", "collective_mismatch"}),
}  # fmt: skip

#: Found only in what dumps do not hold, or not at all: they are played for what must stay silent.
STOPS = ("host_stop", "device_stop")
#: Differences that no buffer holds, and what a rank with one may be called if it had left the same
#: dumps by a stop.
UNSEEN = ("root", "splits")
STOPPED = frozenset({"missing_rank", "gpu_fault"})
#: An operation of its peers with other arguments, which their buffers hold as well.
IN_ARGUMENTS = ("size", "dtype", "kind")
#: One rank does otherwise than its peers in an operation of theirs.
DIFFERENCES = frozenset({"skip", "extra", "size", "dtype", "kind", "root", "splits", "wrong_group"})


@dataclass(frozen=True)
class Fault:
    """``at`` counts the steps of the thread; for a device, the operations of the rank."""

    kind: str
    rank: int
    thread: int = 0
    at: int = 0
    #: Which of a batch's operations.
    part: int = 0
    #: Another step, rank, group or amount, by kind.
    value: int = 0


def play_with(program: Program, faults: Sequence[Fault]) -> Play:
    """Play a program with faults, of different ranks or threads."""
    stops = Stops()
    for fault in faults:
        if fault.kind == "host_stop":
            stops.hosts[fault.rank, fault.thread] = fault.at
        elif fault.kind == "device_stop":
            stops.devices[fault.rank] = fault.at
        else:
            program = change(program, fault)
    return play(program, stops)


def change(program: Program, fault: Fault) -> Program:
    if fault.kind == "drift":
        return _drift(program, fault)
    steps = list(program.ranks[fault.rank][fault.thread])
    if fault.kind == "order":
        _swap(steps, fault.at, fault.value)
    elif fault.kind == "extra":
        steps.insert(fault.at, _copy(steps[fault.value]))
    else:
        step = steps[fault.at]
        parts = list(issues_of(step))
        changed = _change_issue(program, fault, parts[fault.part])
        parts[fault.part : fault.part + 1] = [] if changed is None else [changed]
        if isinstance(step, Batch):
            steps[fault.at : fault.at + 1] = [replace(step, issues=tuple(parts))] if parts else []
        else:
            steps[fault.at : fault.at + 1] = parts
    return program.with_thread(fault.rank, fault.thread, tuple(steps))


def _change_issue(program: Program, fault: Fault, issue: Issue) -> Issue | None:
    members = program.groups[issue.group].members
    if fault.kind == "skip":
        return None
    if fault.kind == "size":
        return replace(issue, numel=issue.numel + 1 + fault.value)
    if fault.kind == "dtype":
        return replace(issue, dtype="Half" if issue.dtype == "Float" else "Float")
    if fault.kind == "kind":
        kind = "broadcast" if issue.kind == "all_reduce" else "all_reduce"
        return replace(issue, kind=kind, root=members[0] if kind == "broadcast" else None)
    if fault.kind == "root":
        return replace(issue, root=fault.value)
    if fault.kind == "peer":
        return replace(issue, peer=fault.value)
    if fault.kind == "splits":
        gives = list(issue.gives)
        gives[fault.value] += 1
        return replace(issue, gives=tuple(gives))
    assert fault.kind == "wrong_group", fault.kind
    return replace(issue, group=list(program.groups)[fault.value])


def _copy(step: Step) -> Step:
    assert isinstance(step, Issue | Batch)
    return replace(step, work="again")


def _swap(steps: list[Step], a: int, b: int) -> None:
    steps[a], steps[b] = steps[b], steps[a]
    # A Wait that stands right behind one of the two goes with it.
    for at in (a, b):
        wait, now = (steps[at + 1] if at + 1 < len(steps) else None), steps[at]
        if isinstance(wait, Wait) and isinstance(now, Issue | Batch):
            other = steps[a + b - at]
            if isinstance(other, Issue | Batch) and wait.work == other.work:
                steps[at + 1] = replace(wait, work=now.work)


def renamed(program: Program, fault: Fault) -> dict[str, str]:
    """Names that a rank gives its groups which made one group more before its ``fault.value``-th.

    Each of those bears the next number.
    """
    return {
        group: str(place + 1) for place, group in enumerate(program.groups)
        if place >= fault.value and fault.rank in program.groups[group].members
    }  # fmt: skip


def _drift(program: Program, fault: Fault) -> Program:
    names = {(fault.rank, group): name for group, name in renamed(program, fault).items()}
    return replace(program, names={**program.names, **names})


def random_fault(random: Random, program: Program, kind: str) -> Fault | None:
    """A fault of that kind, None if the program has no place for it."""
    rank = random.randrange(program.size)
    thread = random.randrange(len(program.ranks[rank]))
    steps = program.ranks[rank][thread]
    if not steps:
        return None  # Of none of the groups in use.
    if kind == "host_stop":
        return Fault(kind, rank, thread, random.randrange(len(steps)))
    if kind == "device_stop":
        return Fault(kind, rank, at=random.randrange(sum(map(len, _issues(program, rank)))))
    if kind == "drift":
        return (
            Fault(kind, rank, value=random.randint(1, len(program.groups) - 1))
            if len(program.groups) > 1
            else None
        )
    places = [
        (at, part) for at, step in enumerate(steps) for part in range(len(issues_of(step)))
        if _fits(program, rank, kind, issues_of(step)[part])
        and (kind != "wrong_group" or len(issues_of(step)) == 1)  # A batch has one group.
    ]  # fmt: skip
    if kind == "order":
        return _random_order(random, rank, thread, steps)
    if not places:
        return None
    at, part = random.choice(places)
    issue = issues_of(steps[at])[part]
    members = program.groups[issue.group].members
    value = random.randint(0, 3)
    if kind == "extra":
        return Fault(kind, rank, thread, random.choice((at, at + 1)), value=at)
    if kind == "peer":
        value = random.choice([m for m in members if m not in (rank, issue.peer)])
    elif kind == "root":
        value = random.choice([m for m in members if m != issue.root])
    elif kind == "splits":
        value = random.choice([i for i, m in enumerate(members) if m != rank])
    elif kind == "wrong_group":
        value = random.choice(_twins(program, rank, issue.group))
    return Fault(kind, rank, thread, at, part, value)


def _issues(program: Program, rank: int) -> list[list[Step]]:
    return [[s for s in steps if issues_of(s)] for steps in program.ranks[rank]]


def _twins(program: Program, rank: int, group: str) -> list[int]:
    """Other groups that have all members of that one on the same backend."""
    mine = program.groups[group]
    return [
        place for place, (name, other) in enumerate(program.groups.items())
        if name != group and rank in other.members and other.backend == mine.backend
        and set(mine.members) <= set(other.members)
    ]  # fmt: skip


def _fits(program: Program, rank: int, kind: str, issue: Issue) -> bool:
    members = program.groups[issue.group].members
    gloo = program.groups[issue.group].backend == "gloo"
    if kind in (
        "size",
        "dtype",
    ):  # Gloo aborts on these; without a size there is nothing to differ.
        return not gloo and issue.kind != "barrier" and not issue.gives
    if kind == "kind":
        return issue.kind in ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
    if kind == "root":
        return issue.root is not None and len(members) > 1
    if kind == "splits":
        return bool(issue.gives) and len(members) > 1
    if kind == "peer":
        return issue.peer is not None and issue.peer != ANY and len(members) > 2
    if kind == "wrong_group":
        return bool(_twins(program, rank, issue.group)) and issue.peer != ANY
    return True


def _random_order(random: Random, rank: int, thread: int, steps: tuple[Step, ...]) -> Fault | None:
    issues = [at for at, step in enumerate(steps) if issues_of(step)]
    pairs = [(a, b) for a, b in pairwise(issues) if _differ(steps[a], steps[b])]
    if not pairs:
        return None
    a, b = random.choice(pairs)
    return Fault("order", rank, thread, a, value=b)


def _differ(one: Step, other: Step) -> bool:
    """True if their order is no matter of one queue alone."""
    return {(i.group, i.peer) for i in issues_of(one)} != {
        (i.group, i.peer) for i in issues_of(other)
    }


def partners(
    program: Program, fault: Fault, seen: frozenset[int], dumped: frozenset[int]
) -> frozenset[int]:
    """Ranks that may be named beside the culprit: nothing tells which of the two is odd.

    In a group of which only two members are ``seen``, and between the ends of a send and a
    receive, the opposite fault of the other side would be one of an equally good program.  Where
    the culprit alone is seen, that of whoever of its group is ``dumped``.
    """
    if fault.kind in STOPS:
        return frozenset()

    def undecided(members: tuple[int, ...]) -> set[int]:
        if len(members) == 2:
            return set(members) - {fault.rank}
        voting = (set(members) & seen) - {fault.rank}
        none = (set(members) & dumped) - {fault.rank} if not voting else set()
        return none if len(voting) != 1 else voting

    groups = program.groups
    if fault.kind == "drift":
        drifted = [groups[name].members for name in list(groups)[fault.value :]]
        # In a group of one nobody else has a vote, nor anything to meet.
        mine = [undecided(m) for m in drifted if fault.rank in m and len(m) > 1]
        return frozenset().union(*mine) if all(mine) else frozenset()
    steps = program.ranks[fault.rank][fault.thread]
    if fault.kind == "order":
        return _crossed(program, steps[fault.at], steps[fault.value], seen) - {fault.rank}
    step = steps[fault.value if fault.kind == "extra" else fault.at]
    parts = issues_of(step) if fault.kind == "extra" else issues_of(step)[fault.part :][:1]
    found: set[int] = set()
    for issue in parts:
        members = groups[issue.group].members
        if issue.peer is not None:
            found |= set(members) if issue.peer == ANY else {issue.peer}
        else:
            found |= undecided(members)
        if fault.kind == "peer":
            found.add(fault.value)
        elif fault.kind == "splits":
            found.add(members[fault.value])
        elif fault.kind == "root" and issue.kind == "gather" and fault.value == fault.rank:
            # Two collect, and no file holds to whom the others sent.
            found.add(issue.root if issue.root is not None else fault.rank)
        elif fault.kind == "wrong_group":
            found |= undecided(list(groups.values())[fault.value].members)
    return frozenset(found) - {fault.rank}


def _crossed(program: Program, one: Step, other: Step, seen: frozenset[int]) -> frozenset[int]:
    """Of two groups with three members or more in common most tell the order; of others nobody."""
    sets = [
        {
            member
            for i in issues_of(step)
            for member in ((i.peer,) if i.peer is not None else program.groups[i.group].members)
        }
        for step in (one, other)
    ]
    return frozenset() if len(sets[0] & sets[1] & seen) > 2 else frozenset(sets[0] | sets[1])
