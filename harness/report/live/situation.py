"""The situation of a running job in a few rows: ranks that do the same are one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hanglab.harness.report.live.ranks_at_work import RankAtWork
from hanglab.harness.report.live.standing import Standing

RUNS = "runs"


@dataclass(frozen=True)
class SituationRow:
    """Ranks that do the same.  ``since_ns`` is the wall time since when all of them do."""

    ranks: tuple[int, ...]
    doing: str
    waits_for: tuple[int, ...]
    since_ns: int | None
    #: The least and the most of the steps that they are in; None without any.
    steps: tuple[int, int] | None
    #: Their processes, where they are few.
    pids: tuple[int, ...] = ()
    #: The reason for which it is not told for whom they wait.
    untold: str = ""


def rows(ranks: Sequence[RankAtWork], standings: Mapping[int, Standing]) -> list[SituationRow]:
    """Those who hold others up first, then those who wait, those who run, those who ended."""
    alike: dict[tuple[str, tuple[int, ...], str], list[RankAtWork]] = {}
    for one in ranks:
        standing = standings.get(one.rank)
        doing = one.ended or (standing.doing if standing is not None else RUNS)
        waits = standing is not None and not one.ended
        waits_for = standing.waits_for if standing is not None and waits else ()
        untold = standing.untold if standing is not None and waits else ""
        alike.setdefault((doing, waits_for, untold), []).append(one)
    awaited = {rank for one in standings.values() for rank in one.waits_for}
    found = []
    for (doing, waits_for, untold), members in alike.items():
        at_rest = [standings[one.rank] for one in members if one.rank in standings]
        steps = [one.step for one in members if one.step >= 0]
        found.append(
            SituationRow(
                ranks=tuple(one.rank for one in members),
                doing=doing,
                waits_for=waits_for,
                since_ns=max((one.since_ns for one in at_rest), default=None)
                if doing != RUNS
                else None,
                steps=(min(steps), max(steps)) if steps else None,
                pids=tuple(one.pid for one in members if one.pid is not None),
                untold=untold,
            )
        )
    found.sort(key=lambda row: (_place(row, awaited), row.ranks[0]))
    return found


def _place(row: SituationRow, awaited: set[int]) -> int:
    if row.doing == RUNS:
        return 2
    if row.waits_for:
        return 1
    return 0 if awaited & set(row.ranks) else 3 if row.since_ns is None else 1
