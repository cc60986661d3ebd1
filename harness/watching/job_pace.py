"""Pace of a job: of all its ranks on this host together, and of each alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hanglab.harness.watching.pace import PaceLimits, Pauses
from hanglab.harness.watching.signs import RankActivity, Signs

#: While one rank moves, or may move on another host, the others may wait for it so many times the
#: least still pause: it may evaluate or write for all.  After eight minutes NCCL's watchdog is
#: near.
_ALONE_FACTOR = 4.0

Stop = Literal["", "all", "most"]


@dataclass
class _RankPauses:
    activity: RankActivity
    pace: Pauses


class JobPauses:
    """Judge of one job's looks."""

    def __init__(
        self, limits: PaceLimits, at_s: float, age_s: float = 0.0, *, elsewhere: bool = False
    ) -> None:
        """``elsewhere``: the job has ranks on other hosts; the rest as for :class:`Pauses`."""
        alone_s = _ALONE_FACTOR * limits.still_s
        self._limits = limits
        self._alone = replace(limits, still_s=alone_s, busy_s=alone_s, warming_s=alone_s)
        self.pace = Pauses(limits, at_s, age_s)
        self.expect(elsewhere)
        self._age_s = age_s
        self._ranks: dict[int, _RankPauses] = {}
        #: Whether anything moved at the last look.
        self.moved = False

    def expect(self, elsewhere: bool) -> None:
        """Take in whether the job has ranks on other hosts, which may be at work."""
        limits, alone_s = self._limits, self._alone.still_s
        if elsewhere:
            limits = replace(
                limits,
                still_s=alone_s,
                busy_s=max(limits.busy_s, alone_s),
                warming_s=max(limits.warming_s, alone_s),
            )
        self.pace.limits = limits

    def look(
        self, at_s: float, ranks: Mapping[int, Signs], seen_moving: frozenset[int] = frozenset()
    ) -> None:
        """Take in the signs of all ranks that live, by process id.

        ``seen_moving``: ranks of which a closer look has shown other functions on the stack.
        """
        for pid in self._ranks.keys() - ranks.keys():
            del self._ranks[pid]
        activities = {}
        for pid, signs in ranks.items():
            known = self._ranks.get(pid)
            if known is None:
                known = _RankPauses(
                    RankActivity(signs, at_s), Pauses(self._alone, at_s, self._age_s)
                )
                self._ranks[pid] = known
                # Whoever comes, moves.
                self.pace.look(at_s, True, learn=False)
            activities[pid] = known.activity.look(signs, at_s)
        if activities and all(one.stopped for one in activities.values()):
            # A scheduler has suspended the job, or somebody at its terminal.
            self.pace.overlook(at_s)
            for known in self._ranks.values():
                known.pace.overlook(at_s)
            return
        for pid, one in activities.items():
            seen = pid in seen_moving
            self._ranks[pid].pace.look(at_s, one.moved or seen, one.busy, learn=one.moved)
        moved = any(one.moved for one in activities.values())
        self.moved = moved or bool(seen_moving & ranks.keys())
        busy = any(one.busy for one in activities.values())
        self.pace.look(at_s, self.moved, busy, learn=moved)

    @property
    def doubtful(self) -> list[int]:
        """Ranks that are to be looked at closer: the pause is long, and they compute."""
        if self.pace.pause_s < self.pace.limit_s / 2:
            return []
        return [pid for pid, known in self._ranks.items() if known.pace.busy]

    @property
    def stop(self) -> Stop:
        """``all`` if the job's pause is unusual, ``most`` if that of most of its ranks is."""
        if not self._ranks:
            return ""
        if self.pace.unusual:
            return "all"
        resting = sum(known.pace.unusual for known in self._ranks.values())
        return "most" if 2 * resting >= len(self._ranks) > 1 else ""

    @property
    def rested_s(self) -> float:
        """Seconds for which nothing has moved, or most of its ranks have not."""
        if self.stop != "most":
            return self.pace.pause_s
        pauses = sorted(known.pace.pause_s for known in self._ranks.values())
        return pauses[len(pauses) // 2]

    def forgive(self) -> None:
        """Take the present pauses for none of a hang: a closer look has shown so."""
        self.pace.forgive()
        for known in self._ranks.values():
            known.pace.forgive()
