"""All ranks of a window, sorted once, so that each is compared with the others at little cost.

To look at the peers of each of a thousand ranks one by one would be a million looks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property

from hanglab.recorder.slowness.statistics import Summary
from hanglab.recorder.slowness.thresholds import IN_STEP_FACTOR


class Middle:
    """The middle of all values but one, of two the greater: so that in doubt nobody is slow."""

    def __init__(self, values: Iterable[float | None]) -> None:
        """None stands for what is not known, and counts for nothing."""
        self._ordered = sorted(value for value in values if value is not None)

    def without(self, own: float | None) -> float:
        """Of all but ``own``, which is one of the values; 0 where no other is known."""
        others = len(self._ordered) - (own is not None)
        if not others:
            return 0.0
        place = others // 2
        if own is not None and bisect_left(self._ordered, own) <= place:
            place += 1
        return self._ordered[place]


class Everybody:
    """Summaries of one section on all ranks, two at least."""

    def __init__(self, summaries: Sequence[Summary]) -> None:
        self._summaries = summaries
        #: Entries of the rank that has fewest, and of the one that has most.
        self.fewest = min(one.count for one in summaries)
        self._most = max(one.count for one in summaries)

    def in_step_with(self, own: Summary) -> bool:
        """True if the windows of all cover the same steps as the rank's."""
        return (
            own.count <= IN_STEP_FACTOR * self.fewest and self._most <= IN_STEP_FACTOR * own.count
        )

    @cached_property
    def medians(self) -> Middle:
        return Middle(one.median for one in self._summaries)

    @cached_property
    def errors(self) -> Middle:
        return Middle(one.error for one in self._summaries)

    @cached_property
    def trimmed(self) -> Middle:
        return Middle(one.trimmed for one in self._summaries)

    @cached_property
    def trimmed_errors(self) -> Middle:
        return Middle(one.trimmed_error for one in self._summaries)

    @cached_property
    def stalled_ms(self) -> Middle:
        """Milliseconds of stalls an entry."""
        return Middle(one.stalled_ms / one.count for one in self._summaries)

    @cached_property
    def stretch_medians(self) -> Sequence[Middle] | None:
        """A middle for each stretch; None where ranks do not have equally many."""
        return _by_stretch([one.stretch_medians for one in self._summaries])

    @cached_property
    def stretch_means(self) -> Sequence[Middle] | None:
        return _by_stretch([one.stretch_means for one in self._summaries])

    def most_stalls_beside(self, own: Summary, ranks: int) -> list[float]:
        """Stalls of the peers that have most, in as many entries as the rank has, ascending."""
        most = self._by_stalls[-ranks - 1 :]
        # Once, should two ranks have the same.
        mine = next((place for place, one in enumerate(most) if one is own), None)
        if mine is not None:
            del most[mine]
        return [one.stalls * own.count / one.count for one in most[-ranks:]]

    @cached_property
    def _by_stalls(self) -> list[Summary]:
        return sorted(self._summaries, key=lambda one: one.stalls / one.count)


def _by_stretch(stretches: Sequence[Sequence[float]]) -> Sequence[Middle] | None:
    if len({len(one) for one in stretches}) != 1:
        return None
    return [Middle(at_once) for at_once in zip(*stretches, strict=True)]
