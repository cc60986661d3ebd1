"""Other dumps that lie in the same folder: of other jobs, and of an earlier moment."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hanglab.harness.trials.losses import Loss
from hanglab.harness.trials.player import Play
from hanglab.harness.trials.programs import Program
from hanglab.harness.trials.shapes import SHAPES


def draw_company(seed: int) -> tuple[bool, Random]:
    """True if each job has a folder of its own; and what further draws are made from."""
    random = Random(seed)
    return random.random() < 0.5, random


def earlier_moment(random: Random, play: Play, loss: Loss) -> Loss:
    """The loss with which all ranks were dumped at one moment of the job before."""
    early = random.uniform(0, play.last_event)
    return replace(loss, moments=(early,) * play.program.size, missing=frozenset())


def another_program(random: Random, beside: Program) -> Program:
    """A program of another shape: one of the same could be a later attempt of the job."""
    while (drawn := random.choice(SHAPES)(random)).shape == beside.shape:
        pass
    return drawn


def lists_everybody(program: Program) -> bool:
    """True if some file lists the members of a group of all ranks: else there may be more."""
    lists = [group.members for group in program.groups.values() if group.backend == "nccl"]
    return any(len(members) == program.size for members in lists)
