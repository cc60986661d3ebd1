"""A rule of ParaStack's kind, for ``benchmarks/watch.py`` to measure beside ours.

ParaStack (Li, Chen, Gupta, SC'17) is for MPI and cannot watch jobs of torch.  What stands here is
its idea alone, as far as we know it, and none of its constants: no figure is ParaStack's own.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise


class LowShareRule:
    """A hang is a share of ranks outside of communication that stays low for longer than by chance.

    It is looked at far enough apart that a runs test finds no order in it.  A share that is low as
    it seldom is is a suspicion; so many of them in a row as come by chance once in a thousand cases
    are a hang, unless ranks are seen to move in and out meanwhile, as in a job that is slow.
    """

    #: Probability of a false alarm for each series of suspicions, and the most likely suspicion
    #: that is used: ours.
    ALPHA, MOST_LIKELY = 0.001, 0.77
    #: Looks from which the share is modelled, and on which the runs test is made.
    LEAST = 16

    def __init__(self, greatest: int) -> None:
        """``greatest``: the longest interval between looks that count, in looks; it is doubled
        until there.  Days of training have phases, in which no interval finds no order."""
        self._interval, self._greatest = 1, greatest
        self._due = 0
        self._all: list[float] = []
        self._latest: list[float] = []
        self._suspicions = 0
        self._moved = False
        self._last: object = None

    def look(self, at_s: float, outside: Mapping[int, bool], varied: Mapping[int, bool]) -> bool:
        self._moved |= any(varied.values()) or outside != self._last
        self._last = dict(outside)
        self._due -= 1
        if self._due > 0:
            return False
        self._due = self._interval
        share = sum(outside.values()) / len(outside)
        limit, likely = self._model()
        suspicious = limit is not None and share <= limit
        if not suspicious or self._moved:
            self._suspicions, self._moved = 0, False
        self._suspicions += suspicious
        self._take(share)
        return suspicious and self._suspicions >= math.ceil(math.log(self.ALPHA, likely))

    def forgive(self) -> None:
        self._suspicions = 0

    def _model(self) -> tuple[float | None, float]:
        """The greatest share that is a suspicion, and how likely it is, its error included."""
        count = len(self._all)
        found: tuple[float | None, float] = None, 0.0
        if count < self.LEAST:
            return found
        for share in sorted(set(self._all)):
            portion = bisect_right(self._all, share) / count
            likely = portion + 1.96 * math.sqrt(max(portion * (1 - portion), 1 / count) / count)
            if likely > self.MOST_LIKELY:
                break
            found = share, likely
        return found

    def _take(self, share: float) -> None:
        insort(self._all, share)
        self._latest.append(share)
        if len(self._latest) < self.LEAST:
            return
        if _in_order(self._latest) and self._interval < self._greatest:
            self._interval *= 2
            self._all.clear()
        self._latest.clear()


def _in_order(values: Sequence[float]) -> bool:
    """True if a runs test (Wald and Wolfowitz) at 5 % finds that values are in no random order."""
    mean = sum(values) / len(values)
    above = [one > mean for one in values]
    many, few = sum(above), len(above) - sum(above)
    if not many or not few:
        return False
    runs = 1 + sum(one is not other for one, other in pairwise(above))
    expected = 1 + 2 * many * few / len(above)
    variance = (expected - 1) * (expected - 2) / (len(above) - 1)
    return variance > 0 and abs(runs - expected) / math.sqrt(variance) > 1.96
