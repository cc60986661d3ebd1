"""The situation of a running job as a table that fits its terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from hanglab.analyzer.plain_text import shown
from hanglab.harness.report.explanation.headlines import duration
from hanglab.harness.report.explanation.subject import ranks_name
from hanglab.harness.report.live.ranks_at_work import RankAtWork
from hanglab.harness.report.live.situation import RUNS, SituationRow

#: Seconds over which the pace is taken.
_PACE_S = 10.0
#: Lines that are not of the table: head, its titles, the foot, the cursor's.
_AROUND = 6
#: Processes that a row names.
_PIDS = 4


class JobPace:
    """The speed of the job: steps where it declares them, else operations, of one rank."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def note(self, ranks: Sequence[RankAtWork], now: float) -> None:
        steps = max((one.steps for one in ranks), default=0)
        operations = max((one.operations for one in ranks), default=0)
        if self._seen and operations < self._seen[-1][2]:
            self._seen.clear()  # it was started anew
        self._seen.append((now, steps, operations))
        while now - self._seen[0][0] > _PACE_S:
            self._seen.popleft()

    def words(self) -> str:
        if not self._seen:
            return ""
        (begun, *before), (now, *after) = self._seen[0], self._seen[-1]
        steps = bool(after[0])
        done, total = (
            (after[0] - before[0], after[0]) if steps else (after[1] - before[1], after[1])
        )
        name = "steps" if steps else "operations"
        pace = f", {done / (now - begun):.1f} a second" if now - begun > 1.0 else ""
        return f"{total:,} {name} so far{pace}"


def head_line(ranks: Sequence[RankAtWork], pace: JobPace) -> str:
    """Words for the number of ranks, their hosts, and their speed."""
    if not ranks:
        return "no rank has come up so far"
    hosts = len({one.host for one in ranks})
    ended = sum(1 for one in ranks if one.ended)
    many = "1 rank" if len(ranks) == 1 else f"{len(ranks):,} ranks"
    where = "1 host" if hosts == 1 else f"{hosts} hosts"
    gone = f", {ended} of them ended" if ended else ""
    return ", ".join(part for part in (f"{many} on {where}{gone}", pace.words()) if part)


def situation_screen(
    console: Console,
    case: Path,
    ranks: Sequence[RankAtWork],
    rows: Sequence[SituationRow],
    pace: JobPace,
) -> Group:
    """All of it, as high as the terminal at most."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("ranks", overflow="fold", max_width=28)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("what they do", overflow="fold", ratio=1)
    table.add_column("for", justify="right", no_wrap=True)
    table.add_column("waits for", overflow="fold", max_width=28)
    table.add_column("process", overflow="fold", max_width=20)
    room = max(3, console.height - _AROUND)
    now_ns = time.time_ns()
    for row in rows[:room]:
        table.add_row(
            ranks_name(row.ranks).removeprefix("ranks ").removeprefix("rank "),
            _steps(row),
            Text(row.doing, style=_style(row)),
            _since(row, now_ns),
            ranks_name(row.waits_for) if row.waits_for else Text(row.untold, style="dim"),
            ", ".join(map(str, row.pids)) if len(row.pids) <= _PIDS else "",
        )
    parts: list[Text | Table] = [Text(head_line(ranks, pace), style="bold"), table]
    if len(rows) > room:
        parts.append(Text(f"and {len(rows) - room} more kinds of ranks", style="dim"))
    parts.append(Text(f"{shown(str(case))}; Ctrl-C leaves, the job goes on", style="dim"))
    return Group(*parts)


def _steps(row: SituationRow) -> str:
    if row.steps is None:
        return ""
    first, last = row.steps
    return str(first) if first == last else f"{first}-{last}"


def _since(row: SituationRow, now_ns: int) -> str:
    return "" if row.since_ns is None else duration(max(0, now_ns - row.since_ns) / 1e9)


def _style(row: SituationRow) -> str:
    if row.doing == RUNS:
        return "green"
    return "yellow" if row.waits_for else "red" if row.since_ns is not None else "dim"
