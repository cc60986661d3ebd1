"""Steps in which a rank is late: all of them, or few, and those at what distance."""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.facts.arrival_lag import Arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.thresholds import (
    FEWEST_LATE_STEPS,
    LATE_STEPS_FALL,
    LATE_STEPS_PART,
    RARELY_LATE,
)


def late_steps(facts: CaseFacts, found: Arrivals, rank: int) -> str:
    """``in every 10th step`` or ``in 7 of 70 steps``, where those make a rank late.

    "" where most steps do, where the job marks none, or where its lateness is spread over them.
    """
    view = facts.ranks.get(rank)
    if view is None or view.progress is None or len(view.progress.steps) < 2:
        return ""
    numbers = np.array([number for number, _ in view.progress.steps])
    begins = found.local(rank, [began for _, began in view.progress.steps])
    late = np.zeros(len(numbers))
    for lag in found.group_lags:
        if rank in lag.members:
            place = lag.members.index(rank)
            step = np.searchsorted(begins, lag.entered[:, place], side="right") - 1
            inside = step >= 0
            np.add.at(late, step[inside], lag.late[inside, place])
    latest = np.argsort(-late, kind="stable")
    falls = {
        count: late[latest[count - 1]] / max(1.0, late[latest[count]])
        for count in range(FEWEST_LATE_STEPS, len(numbers) // RARELY_LATE + 1)
        if late[latest[:count]].sum() >= LATE_STEPS_PART * late.sum()
    }
    few = {count: fall for count, fall in falls.items() if fall >= LATE_STEPS_FALL}
    for count in few:
        apart = set(np.diff(numbers[np.sort(latest[:count])]).tolist())
        if len(apart) == 1 and apart != {1}:
            return f"in every {_ordinal(apart.pop())} step"
    return f"in {max(few, key=lambda one: few[one])} of {len(numbers)} steps" if few else ""


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{ending or 'th'}"
