"""Declaration of a scenario: the decorator, the verdict it expects, and the record of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from hanglab.analyzer.verdict import Cause, Status
from hanglab.harness.faults.fault import Fault
from hanglab.harness.scenarios.number_bounds import MOST_RANKS, is_whole
from hanglab.recorder.case.backends import RUNNABLE, backend_of

Function = TypeVar("Function", bound=Callable[..., object])

DEFAULT_WORLD_SIZE: Final = 4
#: Scenarios move all the time until their fault, so they need less patience than a user's script.
DEFAULT_HANG_AFTER_S: Final = 1.5


def default_status(cause: Cause, backend: str) -> Status:
    """The status that belongs to a cause where the scenario does not say otherwise."""
    return cause.status_where_compared if backend_of(backend).compares_sizes else cause.status


@dataclass(frozen=True, init=False)
class Expect:
    """The verdict that a scenario must get.

    ``culprits`` are global ranks, or ``"all"`` for every rank of whatever world
    size.  ``status`` is the one that belongs to the cause unless given, for all
    backends or as ``{"gloo": ..., "nccl": ...}``, where ``nccl`` stands for ``nccl-emulated``
    too unless that is named.  ``group`` is the description
    of the process group, not judged when left out.  ``location=None`` says that
    the verdict must name no line; otherwise it must name the one that the
    scenario's SEEN comment marks, or its FAULT comment where there is none.
    ``also`` are the further findings of a scenario with several faults at once,
    by cause and culprits; any of them may be the one that the verdict leads with.
    ``Expect.healthy()`` is that of a job that only looks as if something were wrong, and
    ``Expect.inconclusive()`` that of a hang whose evidence can accuse nobody.
    """

    #: None where the verdict must name none.
    cause: Cause | None
    culprits: frozenset[int] | Literal["all"]
    status: Status | Mapping[str, Status] | None
    group: str | None
    location: Literal["seen"] | None
    also: tuple[Expect, ...]

    def __init__(
        self,
        cause: Cause | None,
        culprits: Collection[int] | Literal["all"],
        *,
        status: Status | Mapping[str, Status] | None = None,
        group: str | None = None,
        location: Literal["seen"] | None = "seen",
        also: Sequence[Expect] = (),
    ) -> None:
        if cause is None and status not in (Status.HEALTHY, Status.INCONCLUSIVE):
            raise ValueError("cause is None; say Expect.healthy() or Expect.inconclusive()")
        object.__setattr__(self, "cause", None if cause is None else Cause(cause))
        object.__setattr__(
            self,
            "culprits",
            "all" if culprits == "all" else frozenset(_ranks(culprits)),
        )
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "location", location)
        object.__setattr__(self, "also", tuple(also))

    @classmethod
    def healthy(cls) -> Expect:
        """Of a job without a fault, whose verdict must accuse nobody."""
        return cls(None, (), status=Status.HEALTHY, location=None)

    @classmethod
    def inconclusive(cls) -> Expect:
        """Of a hang of which the evidence shows who waits for what, and not who began."""
        return cls(None, (), status=Status.INCONCLUSIVE, location=None)

    @property
    def is_healthy(self) -> bool:
        return self.status is Status.HEALTHY

    def status_on(self, backend: str) -> Status:
        if isinstance(self.status, Status):
            return self.status
        for name in (backend, backend_of(backend).behaves_as):
            if self.status is not None and name in self.status:
                return self.status[name]
        assert self.cause is not None
        return default_status(self.cause, backend)

    def culprits_of(self, world_size: int) -> list[int]:
        return list(range(world_size)) if self.culprits == "all" else sorted(self.culprits)


def _ranks(culprits: Collection[int] | str) -> list[int]:
    ranks = [rank for rank in culprits if is_whole(rank)]
    if len(ranks) != len(culprits) or any(rank < 0 for rank in ranks):
        raise ValueError(f"culprits are ranks or 'all', not {culprits!r}")
    return ranks


@dataclass(frozen=True)
class Scenario:
    """A declared scenario, or a plain script of which nothing is expected."""

    name: str
    #: File that declares it, absolute.
    source: Path
    #: Line of the declaration.
    line: int
    #: Function to run; None where a script is run instead.
    function: str | None
    #: File that the ranks run: ``source``, or the script.
    program: Path
    #: None where nothing is judged.
    expect: Expect | None
    description: str = ""
    #: File that the ranks run in the control, where that is another one.
    control_program: Path | None = None
    world_size: int = DEFAULT_WORLD_SIZE
    #: The world sizes that it allows; () for every one that has its culprits.
    world_sizes: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    needs: tuple[str, ...] = ()
    #: Containers to spread the ranks over where they get some; None gives each rank its own.
    nodes: int | None = None
    #: GPUs that it cannot do without; ranks that are more share them.  NCCL always needs one.
    gpus: int = 0
    backends: tuple[str, ...] = RUNNABLE
    hang_after_s: float = DEFAULT_HANG_AFTER_S
    reference: str = ""
    #: Rows of the table of known hangs (`scenarios/zoo.json`) that it stages.
    zoo: tuple[str, ...] = ()
    #: Packs that it is declared to be in (:mod:`hanglab.harness.scenarios.packs`).
    packs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    #: Lines of ``program`` that carry a FAULT comment.
    fault_lines: tuple[int, ...] = ()
    #: Lines of ``program`` at which the culprit may be seen at capture.
    seen_lines: tuple[int, ...] = ()

    @property
    def category(self) -> str | None:
        """That of its cause, else ``healthy`` or ``inconclusive``; None of a plain script."""
        if self.expect is None:
            return None
        if self.expect.cause is not None:
            return self.expect.cause.category.value
        assert isinstance(self.expect.status, Status)
        return self.expect.status.value

    @property
    def is_healthy(self) -> bool:
        """True where it has no fault, so that it is its own control."""
        return self.expect is not None and self.expect.is_healthy

    @property
    def smallest_world(self) -> int:
        """The fewest ranks that contain every rank which the declaration names."""
        named = {rank for fault in self.faults for rank in fault.ranks}
        named |= {fault.condition.rank for fault in self.faults}
        if self.expect is not None and self.expect.culprits != "all":
            named |= self.expect.culprits
        for further in self.expect.also if self.expect is not None else ():
            named |= set() if further.culprits == "all" else further.culprits
        return max(named, default=0) + 1

    def refuses_world(self, size: int) -> str | None:
        """The reason that it cannot run with ``size`` ranks, or None if it can."""
        if not 1 <= size <= MOST_RANKS:
            return f"runs with 1 to {MOST_RANKS} ranks, not with {size}"
        if self.world_sizes and size not in self.world_sizes:
            return f"runs with {_either(self.world_sizes)} ranks, not with {size}"
        if size < self.smallest_world:
            return f"needs at least {self.smallest_world} ranks, not {size}"
        return None


def _either(sizes: Sequence[int]) -> str:
    words = [str(size) for size in sizes]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def scenario(
    *,
    expect: Expect,
    world_size: int = DEFAULT_WORLD_SIZE,
    world_sizes: Sequence[int] = (),
    faults: Sequence[Fault] = (),
    needs: Sequence[str] = (),
    nodes: int | None = None,
    gpus: int = 0,
    backends: Sequence[str] = RUNNABLE,
    hang_after: float = DEFAULT_HANG_AFTER_S,
    reference: str = "",
    zoo: str | Sequence[str] = (),
    packs: str | Sequence[str] = (),
    script: str | None = None,
    control_script: str | None = None,
    arguments: Sequence[str] = (),
    name: str | None = None,
) -> Callable[[Function], Function]:
    """Declares a scenario.  All arguments are literals: they are read without running the file.

    ``faults`` are done from outside; without any, the fault is in the code,
    marked ``# FAULT`` and switched by ``job.faulty``.  With ``Expect.healthy()`` there is
    none: the scenario looks like a hang, and runs once, as its own control.  ``needs`` names
    capabilities (``hanglab doctor`` lists them; with ``docker`` it always runs in
    containers), ``nodes`` over how many containers the ranks are spread where they
    run in some (one each without it), ``gpus`` how many GPUs it cannot
    do without; with fewer than its ranks, ranks share them.  ``hang_after`` is how many
    seconds without any movement count as stuck.  ``zoo`` names the row, or rows, of
    `scenarios/zoo.json` that it stages, ``packs`` the packs that it is in (``hanglab packs``),
    without which it is in the one of its category.  ``script`` is a plain script
    beside this file to run instead of the function's body, with ``arguments``;
    its control is ``control_script``, or itself with HANGLAB_FAULT=0.  ``name``
    replaces the function's name, and is what a call that decorates nothing needs.
    """

    def declare(function: Function) -> Function:
        return function

    return declare


__all__ = [
    "DEFAULT_HANG_AFTER_S",
    "DEFAULT_WORLD_SIZE",
    "Cause",
    "Expect",
    "Scenario",
    "default_status",
    "scenario",
]
