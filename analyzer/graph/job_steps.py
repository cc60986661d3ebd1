"""Steps of the job in which ranks made their calls, and what they tell of a difference.

Ranks of one program do the same in each step.  Where hosts run ahead of their devices, a rank that
has left a call out of one step makes it in a later one all the same, and by the calls alone that
looks like another order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, RankDump
from hanglab.analyzer.graph.thresholds import PEERS
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Difference, Divergence
from hanglab.analyzer.matching.program_order import Edit
from hanglab.analyzer.matching.signatures import CODE

#: Differences that may come of a call that was left out, or is one too many.
_OF_PLACE = (Difference.OPERATION, Difference.CALL_SITE)
#: An operation and the user's frames that it was called from.
_Key = tuple[str, object]


def label_by_steps(divergences: Sequence[Divergence], lookup: CallLookup) -> None:
    """Let the steps in which ranks called tell whether a call was left out or is one too many."""
    for divergence in divergences:
        if divergence.difference not in _OF_PLACE or not divergence.deviating:
            continue
        edits = {_edit_of(rank, divergence, lookup) for rank in divergence.deviating}
        edit = edits.pop() if len(edits) == 1 else None
        if edit in (Edit.LEFT_OUT, Edit.ADDED):
            divergence.skipped = edit is Edit.LEFT_OUT
            divergence.told_by_steps = True
            divergence.new_call_in = _new_call_in(divergence, lookup)


def _edit_of(rank: int, divergence: Divergence, lookup: CallLookup) -> Edit | None:
    """Edit of its peers' calls in a step that makes them the rank's; None where nothing tells."""
    mine = _CallsOfSteps.of(rank, divergence, lookup)
    peers = [one for one in divergence.calls if one not in divergence.deviating][:PEERS]
    found = set()
    for peer in peers:
        theirs = _CallsOfSteps.of(peer, divergence, lookup)
        if mine is None or theirs is None or mine.before != theirs.before:
            return None
        found.add(mine.edit_from(theirs))
    return found.pop() if len(found) == 1 else None


def _new_call_in(divergence: Divergence, lookup: CallLookup) -> tuple[int, int] | None:
    peer = next(one for one in divergence.calls if one not in divergence.deviating)
    mine, theirs = (
        _CallsOfSteps.of(rank, divergence, lookup) for rank in (divergence.deviating[0], peer)
    )
    return None if mine is None or theirs is None else mine.new_call_in(theirs)


class _CallsOfSteps:
    """One rank's calls in a group, by the steps of the job, around one number."""

    def __init__(self, dump: RankDump, entries: Entries, rows: list[int], at: int) -> None:
        self._dump = dump
        self._entries = entries
        self._steps = [dump.step_at(int(entries.created_ns[row])) for row in rows]
        self._rows = rows
        self._at = at
        #: Step of the call under the number, and of the one before it.
        self.step = self._steps[at]
        self.before = self._steps[at - 1]

    @classmethod
    def of(cls, rank: int, divergence: Divergence, lookup: CallLookup) -> _CallsOfSteps | None:
        """None where its call under the number, or the steps of that and the last, are unknown."""
        name = divergence.group.name
        dump, entries = lookup.dump(rank), lookup.entries(rank)
        index = lookup.index_of(rank, name, divergence.seq)
        if dump is None or entries is None or index == ABSENT:
            return None
        groups = [i for i, group in enumerate(entries.group_names) if group.name == name]
        rows = np.flatnonzero(np.isin(entries.group, groups) & ~entries.is_p2p).tolist()
        at = rows.index(index)
        if at == 0:
            return None
        found = cls(dump, entries, rows, at)
        return None if found.step is None or found.before is None else found

    def edit_from(self, theirs: _CallsOfSteps) -> Edit | None:
        """The edit of a peer's calls that makes them this rank's."""
        assert self.step is not None and theirs.step is not None
        if self.step > theirs.step:
            return Edit.LEFT_OUT  # It came to its next step with fewer calls.
        if self.step < theirs.step:
            return self._edit_in_last_step(theirs)
        mine, others = self._calls_in(self.step), theirs._calls_in(self.step)
        if not self._is_over(self.step):
            return None
        missing = others - mine
        known = others if theirs._is_over(self.step) else others + theirs._calls_in(self.step - 1)
        added = mine - known
        if bool(missing) == bool(added):
            return None
        if missing:
            return Edit.LEFT_OUT
        return Edit.ADDED if theirs._is_over(self.step) else None

    def _edit_in_last_step(self, theirs: _CallsOfSteps) -> Edit | None:
        """The edit of a rank with more calls in a step than its peers, who are in their next.

        A line that it has come to before belongs to its steps.  One that is new to it, and to
        which its peers come later, is behind them: there it is ahead of its peers.
        """
        key = self._key(self._rows[self._at])
        if key in map(self._key, self._rows[: self._at]):
            return Edit.ADDED
        return Edit.LEFT_OUT if theirs._step_of_later(key) is not None else None

    def _step_of_later(self, key: _Key) -> int | None:
        """Step of the first call like this one that comes after the number; None without one."""
        later = zip(self._rows[self._at :], self._steps[self._at :], strict=True)
        return next((step for row, step in later if self._key(row) == key), None)

    def new_call_in(self, theirs: _CallsOfSteps) -> tuple[int, int] | None:
        """Steps of a call that is new to both ranks, which this one makes before its peer."""
        key = self._key(self._rows[self._at])
        earlier = [*map(self._key, self._rows[: self._at])]
        earlier += map(theirs._key, theirs._rows[: theirs._at])
        there = theirs._step_of_later(key)
        if self.step is None or there is None or key in earlier:
            return None
        return self.step, there

    def _is_over(self, step: int) -> bool:
        """True if the rank has begun a later step."""
        return self._dump.steps_begun[-1][0] > step

    def _calls_in(self, step: int) -> Counter[_Key]:
        rows = (row for row, one in zip(self._rows, self._steps, strict=True) if one == step)
        return Counter(self._key(row) for row in rows)

    def _key(self, row: int) -> _Key:
        entries = self._entries
        stack = int(entries.stack[row])
        frames = entries.stacks[stack] if stack >= 0 else ()
        site = tuple(CODE.user_frames(frames) or frames)
        return entries.operations[int(entries.operation[row])].op, site
