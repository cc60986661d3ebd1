"""A thread's steps, written down in order."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Literal

from hanglab.harness.trials.programs import (
    Await,
    Batch,
    Compute,
    Group,
    Issue,
    Program,
    Signal,
    Step,
    Wait,
)

#: Whether an operation's Work is waited for: by the stream, by the host, or never.
Waits = Literal["stream", "host", "never"]


class Thread:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.steps: list[Step] = []
        self.issued = 0

    def compute(self, low: float = 0.5, high: float = 2.0) -> None:
        self.steps.append(Compute(self.random.uniform(low, high)))

    def issue(self, group: str, kind: str, *, wait: Waits = "stream", **options: Any) -> str:
        """Issue an operation; the name of its Work, for ``wait`` where it is to wait later."""
        work = self._work()
        self.steps.append(Issue(group, kind, work=work, **options))
        if wait != "never":
            self.wait(work, host=wait == "host")
        return work

    def batch(self, issues: list[Issue], *, wait: Waits = "stream", line: int = 10) -> str:
        work = self._work()
        if issues:
            self.steps.append(Batch(tuple(replace(i, line=line) for i in issues), work, line))
            if wait != "never":
                self.wait(work, host=wait == "host")
        return work

    def wait(self, work: str, *, host: bool = False) -> None:
        self.steps.append(Wait(work, host))

    def signal(self, name: str) -> None:
        self.steps.append(Signal(name))

    def await_signal(self, name: str) -> None:
        self.steps.append(Await(name))

    def _work(self) -> str:
        self.issued += 1
        return f"w{self.issued}"


def world(size: int, description: str = "default_pg", backend: str = "nccl") -> Group:
    return Group(tuple(range(size)), description, backend)


def program(shape: str, groups: dict[str, Group], ranks: list[list[Thread]]) -> Program:
    return Program(
        shape, groups, tuple(tuple(tuple(thread.steps) for thread in mine) for mine in ranks)
    )


def splits(random: Random, members: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Elements that each member gives to each: uneven, and what an expert router may choose."""
    return {member: tuple(random.randint(0, 9) for _ in members) for member in members}


def takes(
    gives: dict[int, tuple[int, ...]], members: tuple[int, ...], member: int
) -> tuple[int, ...]:
    here = members.index(member)
    return tuple(gives[other][here] for other in members)
