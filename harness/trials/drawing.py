"""Trials by their seeds: a program of a random shape, with random faults and losses."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hanglab.harness.trials.faults import (
    CAUSES,
    DIFFERENCES,
    Fault,
    play_with,
    random_fault,
    renamed,
)
from hanglab.harness.trials.losses import KINDS, lines_of_backward, random_loss
from hanglab.harness.trials.player import Play
from hanglab.harness.trials.programs import Program, Transport, issues_of
from hanglab.harness.trials.shapes import shapes_of
from hanglab.harness.trials.truth import Trial

FAULTS = (
    "none", "host_stop", "host_stop", "device_stop", "skip", "extra", "size", "dtype", "kind",
    "root", "splits", "peer", "order", "wrong_group", "drift", "two",
)  # fmt: skip
_SINGLE = tuple(kind for kind in CAUSES)
#: Faults that leave an operation in one way, whatever their value is.
_ONE_WAY = ("skip", "dtype", "kind")


def random_transport(random: Random) -> Transport:
    return Transport(
        eager=random.random() < 0.3,
        tolerant=random.random() < 0.2,
        lanes=1 if random.random() < 0.15 else 1_000_000,
        queue=random.randint(4, 16) if random.random() < 0.15 else 1024,
    )


def make_trial(seed: int) -> Trial | None:
    """The trial of that seed; None if its fault has no place, or leaves nothing open."""
    random = Random(seed)
    program = random.choice(shapes_of(seed))(random)
    kind = random.choice(FAULTS)
    program = replace(program, transport=random_transport(random))
    return assemble(seed, random, program, kind)


def _shows(program: Program, played: Play, faults: tuple[Fault, ...]) -> bool:
    """All ended, and yet a buffer holds arguments that differ."""
    ended = not played.open and not played.unfinished and program.transport.tolerant
    return ended and all(fault.kind in ("size", "dtype") for fault in faults)


def _change_of(program: Program, fault: Fault) -> object:
    """The change that a fault makes to its rank's program, equal for what several ranks do alike.

    They may come to the same collective by a different number of steps, and call its group by one
    other name wherever they made a group more.
    """
    if fault.kind == "drift":
        return fault.kind, frozenset(renamed(program, fault).items())
    if fault.kind not in DIFFERENCES or fault.kind == "extra":
        return replace(fault, rank=0)
    steps = program.ranks[fault.rank][fault.thread]
    issue = issues_of(steps[fault.at])[fault.part]
    if issue.peer is not None:
        return replace(fault, rank=0)
    before = sum(
        one.group == issue.group and one.peer is None
        for step in steps[: fault.at] for one in issues_of(step)
    )  # fmt: skip
    value = 0 if fault.kind in _ONE_WAY else fault.value
    return fault.kind, value, replace(issue, work=""), before


def _are_the_program(program: Program, faults: list[Fault]) -> bool:
    """Half of a group or more do alike: that may be the program, and the rest has left it."""
    if len({_change_of(program, fault) for fault in faults}) > 1:
        return False
    ranks = {fault.rank for fault in faults}
    return any(
        ranks <= set(group.members) and len(group.members) <= 2 * len(ranks)
        for group in program.groups.values()
    )


def assemble(seed: int, random: Random, program: Program, kind: str) -> Trial | None:
    healthy = play_with(program, ())
    if healthy.open or healthy.unfinished:
        return None  # Not legal with so few lanes.
    if kind == "none":
        faults: tuple[Fault, ...] = ()
    elif kind == "two":
        kinds = [random.choice(_SINGLE) for _ in range(2)]
        made = [random_fault(random, program, one) for one in kinds]
        found = [fault for fault in made if fault is not None]
        if len({fault.rank for fault in found}) < 2 or _are_the_program(program, found):
            return None
        faults = tuple(found)
    else:
        fault = random_fault(random, program, kind)
        if fault is None:
            return None
        faults = (fault,)
    played = play_with(program, faults)
    if faults and not played.open and not _shows(program, played, faults):
        return None  # No operation shows it, so no dump can.
    count = random.choice((0, 0, 1, 1, 2))
    kinds_of_loss = tuple(random.sample(KINDS, count))
    if program.size == 2:
        kinds_of_loss = tuple(one for one in kinds_of_loss if one != "missing")
    loss = random_loss(random, played, kinds_of_loss)
    if not faults and random.random() < 0.5:
        loss = replace(loss, waited_s=random.uniform(0.05, 10))
    # Drawn beside the others, so that a seed's program and losses stay what they were.
    backward = lines_of_backward(Random(f"{seed} backward"), played)
    return Trial(seed, program, faults, played, replace(loss, backward=backward))
