"""The situation of a running job as lines, one for each change, where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hanglab.harness.report.explanation.subject import ranks_name
from hanglab.harness.report.live.ranks_at_work import RankAtWork
from hanglab.harness.report.live.screen import JobPace, head_line
from hanglab.harness.report.live.situation import RUNS, SituationRow

#: Seconds between two lines that say no more than that the job goes on.
_GOES_ON_S = 30.0


class ChangeLines:
    """Lines for what is new since the last look."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._ranks: set[int] = set()
        self._head_at = float("-inf")

    def new(
        self, ranks: Sequence[RankAtWork], rows: Sequence[SituationRow], pace: JobPace, now: float
    ) -> list[str]:
        """Lines that begin with the time of day; ``now`` is monotonic seconds."""
        lines = []
        here = {one.rank for one in ranks}
        if here != self._ranks or now - self._head_at > _GOES_ON_S:
            lines.append(head_line(ranks, pace))
            self._ranks, self._head_at = here, now
        told = {_sentence(row) for row in rows if row.doing != RUNS}
        lines += [line for row in rows if (line := _sentence(row)) in told - self._told]
        if self._told and not told:
            lines.append("all ranks move again")
        self._told = told
        clock = time.strftime("%H:%M:%S")
        return [f"{clock}  {line}" for line in lines]


def _sentence(row: SituationRow) -> str:
    who = ranks_name(row.ranks)
    if row.since_ns is None:
        return f"{who} {row.doing}"
    since = time.strftime("%H:%M:%S", time.localtime(row.since_ns / 1e9))
    whole = row.doing.startswith(("collects", "is ", "its device is"))
    verb = row.doing if whole else f"is {row.doing}"
    if verb.startswith("its device"):
        who, verb = f"the device of {who}", verb.removeprefix("its device ")
    if len(row.ranks) > 1:
        verb = {"collects garbage": "collect garbage"}.get(verb, verb.replace("is ", "are ", 1))
        who = who.replace("the device of", "the devices of", 1)
    wait = f", for {ranks_name(row.waits_for)}" if row.waits_for else ""
    wait = wait or (f" ({row.untold})" if row.untold else "")
    return f"{who} {verb}{wait}, since {since}"
