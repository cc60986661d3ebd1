"""The Program: for each rank the sequence of operations that it makes over process groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

#: Operations that every member of a group takes part in.
COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
)
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
P2P = frozenset({"send", "recv"})
#: A number of elements that nothing tells: it differs from no other.
UNKNOWN = -1


@dataclass(frozen=True)
class ProgramGroup:
    """A process group; ``members`` are global ranks in group order."""

    name: str
    members: tuple[int, ...]
    description: str = ""
    #: Ranks that made it where others made one of that name with other members; all if empty.
    makers: tuple[int, ...] = ()


def in_order(name: str) -> tuple[int, str]:
    """Key that sorts the names of groups, which count them, in the order of their making."""
    return (int(name), "") if name.isdecimal() else (-1, name)


@dataclass(frozen=True)
class Action:
    """One rank's part in one operation."""

    op: str
    #: Index into :attr:`Program.groups`.
    group: int
    #: Line of the program that makes the call.
    site: int = 0
    #: Elements of the rank's own tensor; UNKNOWN where nothing tells.
    numel: int = 1
    #: As Flight Recorder names it; "" where nothing tells.
    dtype: str = "Float"
    #: Rank within the group, for operations that have a root; None where nothing tells.
    root: int | None = None
    #: Rank within the group; None for any source.
    peer: int | None = None
    #: The host goes on without waiting.
    overlap: bool = False
    #: The host waits for this operation and for all that it left running.
    joins: bool = False
    #: Neighbours with the same number, if not 0, are one coalesced batch.
    batch: int = 0
    #: As the Python boundary names it; "" where nothing tells.
    reduction: str = ""
    #: Elements that an uneven all_to_all sends to, and takes from, each member of the group.
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    #: Thread of the rank that makes the call, which the others do not wait for; 0 makes most.
    thread: int = 0

    @property
    def p2p(self) -> bool:
        return self.op in P2P


@dataclass(frozen=True)
class Program:
    """``actions[r]`` is what rank r does, in its order."""

    groups: tuple[ProgramGroup, ...]
    actions: tuple[tuple[Action, ...], ...] = field(default=())

    @property
    def world_size(self) -> int:
        return len(self.actions)

    def with_actions(self, rank: int, actions: Iterable[Action]) -> Program:
        """A copy of the program with other actions of ``rank``."""
        changed = list(self.actions)
        changed[rank] = tuple(actions)
        return replace(self, actions=tuple(changed))
