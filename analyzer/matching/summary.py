"""One rank's dump, boiled down to what matching needs of it.

A summary is small (a few kilobytes for 2,000 entries), can be pickled, and
holds no stacks: whoever is implicated is read in full a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Int32
from hanglab.analyzer.matching.signatures import UInt64
from hanglab.analyzer.matching.thresholds import REMEMBERED_MEMBERS
from hanglab.analyzer.worlds.activity import Activity
from hanglab.recorder.case.operations import op_of

#: Members of a group: a range where they are evenly spaced, which they nearly always are.
Members = range | tuple[int, ...]

#: In :attr:`Part.codes`: no entry has this sequence number.
GAP = -1
_COMPACT: dict[int, tuple[tuple[int, ...], Members]] = {}


@dataclass
class Pending:
    """An operation that has not finished."""

    #: Index of its entry in the dump.
    index: int
    #: Position in the rank's own order; the same for all members of a batch.
    order: int
    #: Index into :attr:`Summary.parts`.
    part: int
    #: None for point-to-point.
    seq: int | None
    op: str
    #: Ranks within the group, ABSENT where there is none.
    src: int = ABSENT
    dst: int = ABSENT
    tag: int = 0
    #: Which one it is among the entries of its channel, from 0.
    position: int = 0
    #: The rank has started it and does not wait for it.
    posted: bool = False
    #: The thread that issued it, "" where the dump does not tell.
    thread: str = ""
    #: Its thread is known to stand in it, or in a wait for it.
    held: bool = False
    #: An operation that the rank issued after it has finished: this one did not hold up the device
    #: by then.
    overtaken: bool = False
    #: So has one that the same thread issued after it: it did not hold up that by then, either, and
    #: whether the thread waits for it now is not known.
    passed: bool = False
    #: Its device has begun it; None where the dump does not tell.
    started: bool | None = None
    #: It lies on a stream of a device, and not in a queue of the host's.
    on_device: bool = False
    #: When the rank issued it, by its host's clock.
    created_ns: int = ABSENT
    #: How long it may take before torch ends the job; not positive where it is not known.
    timeout_ns: int = ABSENT


class MessageArguments(NamedTuple):
    """Arguments that have to be equal on both ends of a message; no dtype where it is not known."""

    numel: int
    dtype: str


@dataclass
class P2PChannel:
    """Sends, or receives, of one rank with one peer of one group, as far as the ring has them.

    Of one tag; the receives from any source are a channel of their own.
    """

    src: int
    dst: int
    sends: bool
    posted: int
    done: int
    #: Positions of those that have not finished.
    open: tuple[int, ...] = ()
    #: Positions of those of them that the rank waits for, as far as is known.
    awaited: tuple[int, ...] = ()
    tag: int = 0
    #: Arguments of the first messages, each with how many in a row have them.
    arguments: tuple[tuple[int, MessageArguments], ...] = ()

    def holds(self, pending: Pending, position: int) -> bool:
        """True if ``pending`` is the message at ``position``."""
        return (
            (pending.seq, pending.src, pending.dst) == (None, self.src, self.dst)
            and (op_of(pending.op).sends, pending.tag) == (self.sends, self.tag)
            and pending.position == position
        )


@dataclass
class GroupSummary:
    """One group, as one rank's dump has it."""

    name: str
    description: str = ""
    members: Members | None = None
    pg_id: int = ABSENT
    #: Sequence number of ``codes[0]``.
    base: int = 0
    #: How many sequence numbers there are from ``base`` to the last entry.
    length: int = 0
    #: Index into :attr:`Summary.table` per sequence number, GAP without entry; None
    #: once merging has moved it into the group's histories.
    codes: Int32 | None = None
    #: Highest collective sequence number that the rank entered; None if not known.
    entered: int | None = None
    #: Sequence numbers of collectives that have not finished.
    unfinished: tuple[int, ...] = ()
    channels: list[P2PChannel] = field(default_factory=list)
    #: Some operation of the group is gloo's.
    gloo: bool = False
    #: Point-to-point operations were seen, so the group's status may count them.
    p2p: bool = False
    #: Below ``base`` the ring may have dropped operations that had not finished.
    history_truncated: bool = False
    #: The channels are known from their first operation on.
    counted: bool = False
    #: Operations before the last entry that the dump does not show; ABSENT where that is not known.
    unseen: int = ABSENT
    #: Operations were issued that the ring does not show (point-to-point on gloo).
    hidden: bool = False
    #: Finished operations were left out of the dump.
    active_only: bool = False
    #: The thread that issued all collectives of the group, "" where there is no such one.
    thread: str = ""
    #: How many members the group has by the shapes of its operations; 0 where none tells.
    size: int = 0
    #: When the rank issued the first and the last operation that its dump shows.
    first_ns: int = ABSENT
    last_ns: int = ABSENT
    #: A group of the same name was formed later.
    former: bool = False


@dataclass
class RankSummary:
    """One rank.  ``table`` has shape ``(k, 5)``, see :func:`signatures.signature_table`."""

    rank: int
    #: Some operation of it is gloo's.
    gloo: bool = False
    #: No GPU was behind its groups.
    emulated: bool = False
    #: The ring still holds the first operation that the rank ever made.
    whole: bool = False
    #: It still holds the first that it was given: nothing was dropped, though what has finished may
    #: have been left out.
    undropped: bool = False
    #: False where the dump can tell nothing about operations.
    informative: bool = True
    activity: Activity = Activity()
    #: The dump has group statuses at all (formats before 2.4 do not).
    has_status: bool = False
    #: The file breaks off, so operations may follow that nobody can read.
    truncated: bool = False
    parts: list[GroupSummary] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    #: Status by pg_id that no entry ties to a name: (enqueued, completed).
    unassigned_status: dict[int, tuple[int, int]] = field(default_factory=dict)
    table: UInt64 = field(default_factory=lambda: np.zeros((0, 5), dtype=np.uint64))
    #: The ring may have dropped operations that had not finished.
    history_truncated: bool = False
    #: The thread that issued most of its operations, "" where the dump does not tell.
    thread: str = ""
    #: Index of the rank's last entry, ABSENT without entries.
    last: int = ABSENT
    #: Ranks that the dump names without saying in which group.
    nameless: Members = ()
    #: The dump has neither an entry nor a status.
    empty: bool = False
    #: See :attr:`RankDump.boundary_only`.
    boundary_only: bool = False
    #: Sends and receives leave no entry (gloo, without what the Python boundary knows).
    silent_p2p: bool = False
    #: See :attr:`RankDump.former`.
    former: dict[str, str] = field(default_factory=dict)


def compact(ranks: Iterable[int]) -> Members:
    """Members in their shortest form; the order, which numbers ranks in the group, is kept."""
    given = ranks if type(ranks) is tuple else tuple(ranks)
    known = _COMPACT.get(id(given))
    if known is None:
        if len(_COMPACT) >= REMEMBERED_MEMBERS:
            _COMPACT.clear()
        # The loader reads equal lists once; what is held keeps its identity.
        known = _COMPACT[id(given)] = given, _compacted(given)
    return known[1]


def _compacted(given: tuple[int, ...]) -> Members:
    if len(given) > 1:
        step = given[1] - given[0]
        if step and given == tuple(range(given[0], given[-1] + (1 if step > 0 else -1), step)):
            return range(given[0], given[-1] + (1 if step > 0 else -1), step)
    return given
