"""Calls, the groups that they were made in, and where members of a group do not make the same.

Ranks are global ranks.  A sequence number is the group's ``collective_seq_id``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from hanglab.analyzer.flight_recorder.columns import Arguments, Frame


@dataclass(frozen=True)
class ProcessGroup:
    """A process group: identity is the name **and** the member set."""

    name: str
    members: tuple[int, ...]
    description: str = ""


@dataclass(frozen=True)
class Call:
    """One rank's part in one operation."""

    rank: int
    group: ProcessGroup
    #: None for point-to-point.
    seq: int | None
    op: str
    arguments: Arguments = Arguments()
    #: Innermost first; () without frames.
    stack: tuple[Frame, ...] = ()
    created_ns: int | None = None
    #: Global rank of the other side of a send or receive, None for any source.
    peer: int | None = None
    #: Tag of a send or receive; 0 without one.
    tag: int = 0
    #: True once it is proved to have finished.
    completed: bool = False


class Difference(str, Enum):
    """Differences of the calls under one sequence number, gravest first."""

    OPERATION = "operation"
    CALL_SITE = "call_site"
    SIZE = "size"
    DTYPE = "dtype"
    ROOT = "root"
    REDUCE_OP = "reduce_op"
    SPLITS = "splits"


class UnknownCall(str, Enum):
    """Reasons for which a member's call under a number is not known."""

    NO_EVIDENCE = "no_evidence"  # there is no dump, or it tells nothing of the group
    OVERWRITTEN = "overwritten"  # its ring begins later
    FINISHED = "finished"  # its dump shows unfinished operations only
    UNLINED = "unlined"  # its dump does not tell from which line


@dataclass
class Divergence:
    """The first sequence number of a group at which its members do not do the same."""

    group: ProcessGroup
    seq: int
    difference: Difference
    #: The calls that are known under this number.
    calls: dict[int, Call]
    #: Ranks that deviate: the minority, or whoever leaves the order that the group kept before.
    #: Empty where nothing tells the sides apart.
    deviating: tuple[int, ...]
    #: Every rank that could be meant where ``deviating`` is empty.
    candidates: tuple[int, ...]
    #: True where groups of the same description made the call of the few, or all did in each round
    #: before, and the rest left it out: nobody deviates for sure.
    contradicted: bool = False
    #: True where each deviating rank's later operations continue its peers' order
    #: with some removed.
    skipped: bool = False
    #: True where the steps of the job in which the calls were made tell ``skipped``.
    told_by_steps: bool = False
    #: Steps in which a deviating rank, and a peer later on, made the call that is new to both.
    new_call_in: tuple[int, int] | None = None
    #: True where both sides made both calls, each from a thread of its own, in other turns.
    thread_turns: bool = False
    #: True where every known member finished it all the same, so that the job went on for a while.
    finished: bool = False
    #: Members whose call under this number is not known, so that their votes are missing.
    unknown_calls: dict[int, UnknownCall] = field(default_factory=dict)
    #: There may be further members, of which no dump tells.
    unlisted: bool = False
    #: Members that have not come to that number, and have nothing open.
    away: tuple[int, ...] = ()

    @property
    def undecided(self) -> bool:
        """True if what is missing could turn who is in the minority, and nothing else tells."""
        return not self.deviating and bool(self.unknown_calls or self.unlisted)
