"""Pace of a job or a rank: the pauses that it makes, and the length from which one is unusual.

Pure arithmetic on what it is told: the clock is the caller's, so hours of a job can be judged
in seconds.  A pause is a time in which nothing moved; one with processor time in it is *busy*,
and gets more patience, as one long call of native code looks like that, too.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A pause may take so many times the longest one so far ...
_FACTOR = 5.0
#: ... or, where that is longer already, so many seconds more than it, or twice it: what stood
#: 12 s may stand a minute, what stood 5 minutes is not waited for 25.
_MORE_S = 240.0
_LONG_FACTOR = 2.0
#: A look that comes late counts as so many seconds at most: a host on which the watch itself
#: does not run, or that was suspended, shows nothing.
_LATE_S = 10.0
#: Share of a pause from which on it is a busy one.
_BUSY_SHARE = 0.5


@dataclass(frozen=True)
class PaceLimits:
    """Least lengths of pauses, in seconds, that count as unusual.

    ``still_s``: nobody so much as computed.  Two minutes are more than file systems and
    collectors of garbage take, and leave time before the ten minutes after which NCCL's
    watchdog ends a job; ``benchmarks/watch.py`` measures others, too.  ``busy_s``: somebody
    computed, and no look at its stack showed another function.  ``warmup_s``: seconds of age in
    which a job imports, downloads and compiles, once in its life; what pauses there is not
    learned, and has at least ``warming_s``.
    """

    still_s: float = 120.0
    busy_s: float = 300.0
    warming_s: float = 300.0
    warmup_s: float = 300.0

    def scaled(self, still_s: float) -> PaceLimits:
        """Limits of which all are so many times these as ``still_s`` is."""
        factor = still_s / self.still_s
        return PaceLimits(
            still_s, self.busy_s * factor, self.warming_s * factor, self.warmup_s * factor
        )


class Pauses:
    """Pauses of something that moves.  ``look`` is to be called every second or so."""

    def __init__(self, limits: PaceLimits, at_s: float, age_s: float = 0.0) -> None:
        """``at_s``: now, by a clock that only goes forward; ``age_s`` since the job began."""
        self.limits = limits
        self._at_s = at_s
        self._age_s = age_s
        self._busy_s = 0.0
        self.pause_s = 0.0
        #: Longest earlier pauses, those that were still, and all.
        self.longest_still_s = 0.0
        self.longest_s = 0.0

    def look(self, at_s: float, moved: bool, busy: bool = False, learn: bool = True) -> None:
        """Take in one look: whether something moved since the last one, or only computed.

        ``learn``: False where what moved was seen by looking closer, so that the pause before
        says how seldom that was done and not how the job pauses.
        """
        seconds = min(max(0.0, at_s - self._at_s), _LATE_S)
        self._at_s = at_s
        self._age_s += seconds
        if not moved:
            self.pause_s += seconds
            self._busy_s += seconds if busy else 0.0
            return
        if learn and not self.warming:
            self._learn()
        self.forget()

    def overlook(self, at_s: float) -> None:
        """Take the time since the last look for none: nothing could have moved in it."""
        self._at_s = at_s

    def forget(self) -> None:
        """End the present pause without learning from it."""
        self.pause_s = self._busy_s = 0.0

    def forgive(self) -> None:
        """End the present pause as one that the job makes: a closer look has shown so."""
        self._learn()
        self.forget()

    def _learn(self) -> None:
        if not self.busy:
            self.longest_still_s = max(self.longest_still_s, self.pause_s)
        self.longest_s = max(self.longest_s, self.pause_s)

    @property
    def warming(self) -> bool:
        """True while the job is as young as jobs that are still getting ready."""
        return self._age_s - self.pause_s < self.limits.warmup_s

    @property
    def busy(self) -> bool:
        """True if the present pause is one in which somebody computed."""
        return self._busy_s > _BUSY_SHARE * self.pause_s

    @property
    def limit_s(self) -> float:
        """Seconds from which on the present pause is unusual for this job."""
        limits = self.limits
        least = limits.busy_s if self.busy else limits.still_s
        if self.warming:
            least = max(least, limits.warming_s)
        return max(least, self._longer_than(self.longest_s if self.busy else self.longest_still_s))

    def _longer_than(self, longest_s: float) -> float:
        more_s = _MORE_S * self.limits.still_s / PaceLimits.still_s
        return min(_FACTOR * longest_s, max(longest_s + more_s, _LONG_FACTOR * longest_s))

    @property
    def unusual(self) -> bool:
        """True if the present pause is longer than any that is to be expected of this job."""
        return self.pause_s >= self.limit_s
