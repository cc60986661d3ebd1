"""Rests out of all proportion: a look at what may well be a hang, before the threshold has passed.

Who asks or interrupts after a while comes earlier than the recorder, which waits for its
threshold.  That the job moves is then no more proved than that it hangs.
"""

from __future__ import annotations

from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.heuristics.interpreter import PAUSES

#: A rest of all ranks that is this long, in seconds, and longer than any before by PAUSES.
_LONG_S = 5.0


def long_rest(known: Known) -> tuple[float, float] | None:
    """For how long nothing had moved, and the longest pause before, in seconds.

    None unless the rest is out of all proportion.
    """
    movements = [view.movement for view in known.ranks.values() if view.ended is None]
    rest = min((m.quiet_s if m is not None else 0.0 for m in movements), default=0.0)
    pause = max((m.longest_pause_s for m in movements if m is not None), default=0.0)
    return (rest, pause) if rest >= max(_LONG_S, PAUSES * pause) else None
