"""The heat table: ranks down, sections across, colour by score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hanglab.analyzer.plain_text import shown
from hanglab.harness.report.explanation.subject import ranks_name
from hanglab.harness.report.rank_ranges import ranges
from hanglab.harness.report.stragglers.history import StragglerHistory
from hanglab.recorder.slowness import median, relative_scores
from hanglab.recorder.slowness.thresholds import FLOOR_MS

#: Colours of scores: the first whose limit the score reaches.
_HEAT = ((0.95, "green"), (0.85, "bright_green"), (0.75, "yellow"), (0.5, "dark_orange"))
_HOTTEST = "bold red"
#: Columns beyond these would not fit any terminal.
_WIDEST = 12
#: Ranks that have a line each: of more, about a screen of those that stand out.
_MOST_LINES = 32
_STAND_OUT = 24


class _Cell(NamedTuple):
    """A rank's own work in a section; None where it is not known."""

    milliseconds: float | None
    score: float | None
    #: Slower than its peers in at least half of the windows.
    held: bool
    #: Long enough for its score to be more than noise.
    matters: bool


def heat_table(history: StragglerHistory) -> RenderableType:
    """Own work of each rank in each section, with its score against the fastest.

    ``!`` marks ranks that are slower than their peers in at least half of the windows.
    Of many ranks those that stand out have a line each, and all others one together.
    """
    sections = history.sections
    columns = sections[:_WIDEST]
    cells = _cells(history, columns)
    shares = history.input_shares()
    alone, together = _parted(history, cells)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("rank", justify="right", overflow="fold")
    for section in columns:
        table.add_column(Text(shown(section, 60)), justify="right", overflow="fold")
    if shares:
        table.add_column("input", justify="right")
    for rank in alone:
        texts = [_text(cells[section][rank]) for section in columns]
        if shares:
            texts.append(Text(f"{shares[rank]:.0%}" if rank in shares else "?"))
        table.add_row(str(rank), *texts)
    if together:
        texts = [_of_many([cells[section][rank] for rank in together]) for section in columns]
        if shares:
            told = [shares[rank] for rank in together if rank in shares]
            texts.append(Text(f"{median(told):.0%}" if told else "?"))
        table.add_row(_name_of_many(together), *texts)
    notes = _notes(history, len(sections))
    if together:
        notes.insert(
            1,
            f"{len(together):,} ranks that stand out less are one line: their middle, and the "
            "lowest of their scores.",
        )
    return Group(table, Text(), *(Text(line) for line in notes))


def _cells(history: StragglerHistory, sections: Sequence[str]) -> dict[str, dict[int, _Cell]]:
    slow = history.slow()
    found = {}
    for section in sections:
        medians = history.medians(section)
        scores = relative_scores({rank: medians.get(rank) for rank in history.ranks})
        matters = max(medians.values()) >= FLOOR_MS
        found[section] = {
            rank: _Cell(
                medians.get(rank),
                scores[rank],
                2 * (often := slow.get((section, rank), 0)) >= len(history.windows) and often > 0,
                matters,
            )
            for rank in history.ranks
        }
    return found


def _parted(
    history: StragglerHistory, cells: dict[str, dict[int, _Cell]]
) -> tuple[list[int], list[int]]:
    """Ranks with a line of their own, and the others; in order of ranks."""
    if len(history.ranks) <= _MOST_LINES:
        return list(history.ranks), []

    def low(rank: int) -> tuple[bool, float]:
        own = [of_section[rank] for of_section in cells.values()]
        scores = [one.score for one in own if one.matters and one.score is not None]
        return not any(one.held for one in own), min(scores, default=1.0)

    odd = [rank for rank in history.ranks if not low(rank)[0] or low(rank)[1] < _HEAT[0][0]]
    first = sorted(odd, key=low)[:_STAND_OUT]
    return sorted(first), sorted(set(history.ranks).difference(first))


def _name_of_many(ranks: Sequence[int]) -> str:
    named = ranges(ranks)
    return named if len(named) <= 24 else ranks_name(ranks)


def _of_many(cells: Sequence[_Cell]) -> Text:
    """One for many ranks: the middle of their times, and the lowest score."""
    times = [one.milliseconds for one in cells if one.milliseconds is not None]
    scores = [one.score for one in cells if one.score is not None]
    return _text(
        _Cell(
            median(times) if times else None,
            min(scores) if scores else None,
            any(one.held for one in cells),
            any(one.matters for one in cells),
        )
    )


def _text(cell: _Cell) -> Text:
    if cell.milliseconds is None:
        return Text("?", style="dim")
    if cell.score is None:
        return Text(f"{cell.milliseconds:.1f} ms    ?", style="dim")
    score = cell.score
    style = next((colour for limit, colour in _HEAT if score >= limit), _HOTTEST)
    if not cell.matters:
        style = "dim"
    return Text(f"{cell.milliseconds:.1f} ms {score:.2f}{'!' if cell.held else ' '}", style=style)


def _notes(history: StragglerHistory, sections: int) -> list[str]:
    notes = [
        f"Windows: {len(history.windows)}, from {history.source}. Own work of each rank per entry, "
        "and its score against the fastest; ! is slower than its peers, ? is unknown."
    ]
    if sections > _WIDEST:
        notes.append(f"{sections - _WIDEST} sections that take less time are not shown.")
    starvation = history.starvation()
    if starvation is not None:
        if starvation.everybody:
            whose = "every rank's input is too slow"
        elif starvation.slow:
            whose = f"the input of {ranks_name(starvation.slow)} is too slow"
        else:
            whose = "whose input is too slow cannot be told"
        notes.append(f"The job lost up to {starvation.share:.0%} of a window to input: {whose}.")
    return notes + [shown(remark) for remark in _remarks(history.remarks)]


def _remarks(remarks: Sequence[str]) -> list[str]:
    """The detector's remarks; of a thousand ranks' the first, and how many more there are."""
    more = len(remarks) - _STAND_OUT
    return [*remarks[:_STAND_OUT], *([f"and {more:,} more remarks"] if more > 0 else [])]
