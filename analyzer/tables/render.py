"""The table of entries for a terminal; names of strangers are shown and never obeyed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from rich.console import Group as Stacked
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hanglab.analyzer.flight_recorder.columns import ABSENT, Frame, State
from hanglab.analyzer.plain_text import shown
from hanglab.analyzer.tables.calls import GroupOfCalls
from hanglab.analyzer.tables.entries import Absent, CallCell, EntriesTable, Row
from hanglab.analyzer.tables.folding import RowByRanks, rows_by_ranks
from hanglab.analyzer.tables.missing_answers import ranks_text

#: Tensors of one call whose sizes are written out.
_TENSORS = 2
#: Ranks that get a column each: of more, a terminal of 200 characters leaves none ten.
_MOST_COLUMNS = 16


def render_entries(table: EntriesTable) -> RenderableType:
    """One column per rank, or of many ranks one line for those with equal calls.

    What deviates is red, what is unfinished yellow.  Colour only repeats what a sign says: ``!``
    deviates, ``*`` is unfinished.
    """
    grid = Table(show_edge=False, pad_edge=False, header_style="bold")
    grid.add_column("group", overflow="fold")
    grid.add_column("seq", justify="right", no_wrap=True)
    labels = _labels({row.group for row in table.rows})
    if len(table.ranks) > _MOST_COLUMNS:
        grid.add_column("ranks", overflow="fold")
        grid.add_column("call", overflow="fold")
        for told in rows_by_ranks([(row, _texts(row)) for row in table.rows], labels):
            _add_lines(grid, told)
    else:
        for rank in table.ranks:
            grid.add_column(f"rank {rank}", overflow="fold")
        for row in table.rows:
            cells = [_cell(row.cells.get(rank, Absent.OTHERS)) for rank in table.ranks]
            grid.add_row(*_heading(row, labels[row.group]), *cells)
    parts: list[RenderableType] = [grid] if table.rows else [Text("no entries to show")]
    parts.extend(_legend(table))
    if table.left_out:
        parts.append(Text(f"and {table.left_out} more rows with a mismatch (--mismatch-cap)"))
    for number, stack in enumerate(table.stacks, 1):
        parts.append(_stack(number, stack))
    parts.extend(Text(shown(note), style="yellow") for note in table.notes)
    for item in table.unusable:
        parts.append(Text(shown(f"not used: {item.file}: {item.reason}"), style="dim"))
    return Stacked(*parts)


def _heading(row: Row, label: str) -> tuple[Text, str]:
    """The row's group, with what differs in it, and its number."""
    text = Text(label)
    if row.difference is not None:
        text.append(f"\n! {row.difference.value} differs", style="red")
    return text, "" if row.seq is None else str(row.seq)


def _texts(row: Row) -> dict[int, Text]:
    return {rank: _cell(cell) for rank, cell in row.cells.items()}


def _add_lines(grid: Table, told: RowByRanks) -> None:
    """A line for all ranks with equal calls, the fewest first."""
    heading = _heading(told.row, told.label)
    for text, ranks in told.lines():
        grid.add_row(*heading, ranks_text(ranks), text)
        heading = Text(), ""


_MEANINGS = {
    Absent.NOT_RECORDED: "entered, but its dump no longer has it",
    Absent.UNKNOWN: "its dump does not tell whether it entered",
}


def _legend(table: EntriesTable) -> list[Text]:
    cells = [
        cell for row in table.rows for cell in row.cells.values() if isinstance(cell, CallCell)
    ]
    signs = []
    if any(cell.deviates for cell in cells):
        signs.append("! differs from its peers")
    if any(not cell.finished for cell in cells):
        signs.append("* unfinished")
    words = {cell for row in table.rows for cell in row.cells.values() if isinstance(cell, Absent)}
    signs += [
        f"{word.value}: {_MEANINGS[word]}" for word in Absent if word in words & _MEANINGS.keys()
    ]
    return [Text("\n" + "   ".join(signs), style="dim")] if signs else []


def _labels(groups: Collection[GroupOfCalls]) -> dict[GroupOfCalls, str]:
    """Names of groups; groups that people call the same are told apart by members."""
    counts = Counter(group.label for group in groups)
    return {
        group: shown(
            group.label
            if counts[group.label] == 1
            else f"{group.label} ({ranks_text(group.members) if group.members else group.name})"
        )
        for group in groups
    }


def _cell(cell: CallCell | Absent) -> Text:
    if isinstance(cell, Absent):
        return Text(cell.value, style="yellow" if cell is Absent.NOT_ENTERED else "dim")
    text = Text()
    if cell.deviates:
        text.append("! ", style="bold red")
    operation = cell.operation
    text.append(shown(operation.op or "?"), style="red" if cell.deviates else "")
    if operation.src != ABSENT or operation.dst != ABSENT:
        ends = [str(end) if end != ABSENT else "any" for end in (operation.src, operation.dst)]
        text.append(" " + "->".join(ends))
    sizes = cell.arguments.input_sizes or cell.arguments.output_sizes
    dtypes = cell.arguments.input_dtypes or cell.arguments.output_dtypes
    if sizes:
        text.append(f" {_sizes(sizes)} {shown('/'.join(dict.fromkeys(dtypes)))}")
    # gloo leaves every entry scheduled and strikes it off when it is done.
    state = State.COMPLETED if cell.finished else cell.state
    text.append(f" {state.name.lower()}", style="dim")
    if not cell.finished:
        text.append(" *", style="bold yellow")
    if cell.stack is not None:
        text.append(f" #{cell.stack + 1}", style="cyan")
    return text


def _sizes(sizes: Sequence[Sequence[int]]) -> str:
    shown = ["[" + ",".join(map(str, shape)) + "]" for shape in sizes[:_TENSORS]]
    more = len(sizes) - len(shown)
    return "".join(shown) + (f"+{more}" if more else "")


def _stack(number: int, stack: Sequence[Frame]) -> Text:
    text = Text(f"\n#{number}\n", style="cyan")
    for frame in stack:
        text.append(
            f"  {shown(frame.file)}:{frame.line} in {shown(frame.function)}\n", style="default"
        )
    return text
