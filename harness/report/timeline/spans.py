"""Stretches of time and moments of a job, on the job's clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class SpanKind(str, Enum):
    """Kinds of what a rank did meanwhile."""

    #: From the call until it had finished.
    OPERATION = "operation"
    #: The host waited for an operation's end.
    WAIT = "wait"
    #: A section that the job declared.
    SECTION = "section"
    #: Waiting for a data loader, or an optimizer's step: sections of the recorder's own.
    INPUT = "input"
    UPDATE = "update"
    #: The garbage collector ran, and no other Python code of the rank.
    COLLECTION = "garbage collection"


@dataclass(frozen=True)
class SpanActivity:
    """Kind, name and place of spans; ``group`` is the description that people gave it."""

    kind: SpanKind
    name: str
    group: str = ""
    group_id: str = ""
    #: Global ranks of the group.
    members: tuple[int, ...] = ()
    #: File, line and function of the call; "" and 0 where they are not known.
    file: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True)
class TimelineSpan:
    """One stretch of one rank.  Times are wall nanoseconds of the job's clock."""

    activity: SpanActivity
    begin_ns: int
    #: None where its end was not recorded, or has not come.  An open one ends with its rank.
    end_ns: int | None
    #: It had not ended at the capture.
    open: bool = False
    #: Of a collective.
    seq: int | None = None
    #: When the call itself came back; the operation may go on after that.
    returned_ns: int | None = None
    #: Global rank at the other end of a message.
    peer: int | None = None
    tag: int = 0


@dataclass(frozen=True)
class Moment:
    """Something that happened at once: to a rank, to a host, or to the job."""

    at_ns: int
    #: ``capture``, ``exception``, ``exit``, ``fault``, ``kernel``, ``stacks`` or ``step``.
    kind: str
    text: str
    rank: int | None = None
    host: str = ""


@dataclass
class RankTimeline:
    """One rank: its spans by begin, and the moments at which its steps began."""

    rank: int
    host: str = ""
    pid: int | None = None
    spans: list[TimelineSpan] = field(default_factory=list)
    #: Number of a step, and when it began.
    steps: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class JobTimeline:
    """All ranks that were asked for, and what happened to the job."""

    ranks: list[RankTimeline] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    #: Up to when open spans are known to have gone on; None where no time is known at all.
    end_ns: int | None = None

    @property
    def begin_ns(self) -> int | None:
        """The first time of any span or step; None without any."""
        firsts = [one.spans[0].begin_ns for one in self.ranks if one.spans]
        firsts += [one.steps[0][1] for one in self.ranks if one.steps]
        return min(firsts, default=None)
