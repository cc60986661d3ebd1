"""The heat table: ranks down, sections across, colour by score."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hanglab.harness.report.stragglers.history import StragglerHistory
from hanglab.recorder.slowness import relative_scores
from hanglab.recorder.slowness.thresholds import FLOOR_MS

#: Colours of scores: the first whose limit the score reaches.
_HEAT = ((0.95, "green"), (0.85, "bright_green"), (0.75, "yellow"), (0.5, "dark_orange"))
_HOTTEST = "bold red"
#: Columns beyond these would not fit any terminal.
_WIDEST = 12


def heat_table(history: StragglerHistory) -> RenderableType:
    """Own work of each rank in each section, with its score against the fastest.

    ``!`` marks ranks that are slower than their peers in at least half of the windows.
    """
    sections = history.sections
    shown = sections[:_WIDEST]
    medians = {section: history.medians(section) for section in shown}
    scores = {
        section: relative_scores(
            {rank: medians[section].get(rank) for rank in history.ranks},
        )
        for section in shown
    }
    slow = history.slow()
    shares = history.input_shares()
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("rank", justify="right")
    for section in shown:
        table.add_column(section, justify="right", overflow="fold")
    if shares:
        table.add_column("input", justify="right")
    for rank in history.ranks:
        cells = []
        for section in shown:
            often = slow.get((section, rank), 0)
            held = 2 * often >= len(history.windows) and often > 0
            matters = max(medians[section].values()) >= FLOOR_MS
            cells.append(_cell(medians[section].get(rank), scores[section][rank], held, matters))
        if shares:
            cells.append(Text(f"{shares[rank]:.0%}" if rank in shares else "?"))
        table.add_row(str(rank), *cells)
    return Group(table, Text(), *(Text(line) for line in _notes(history, len(sections))))


def _cell(milliseconds: float | None, score: float | None, held: bool, matters: bool) -> Text:
    if milliseconds is None:
        return Text("?", style="dim")
    if score is None:
        return Text(f"{milliseconds:.1f} ms    ?", style="dim")
    style = next((colour for limit, colour in _HEAT if score >= limit), _HOTTEST)
    if not matters:  # too short for its score to be more than noise
        style = "dim"
    return Text(f"{milliseconds:.1f} ms {score:.2f}{'!' if held else ' '}", style=style)


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
            whose = "the input of rank " + ", ".join(map(str, starvation.slow)) + " is too slow"
        else:
            whose = "whose input is too slow cannot be told"
        notes.append(f"The job lost up to {starvation.share:.0%} of a window to input: {whose}.")
    return notes + list(history.remarks)
