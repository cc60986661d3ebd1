"""An explanation on a terminal: what is needed first comes first, the chain of evidence last."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hanglab.analyzer.catalogue import Status
from hanglab.harness.report.explanation.headlines import duration
from hanglab.harness.report.explanation.parts import (
    Explanation,
    OpenAlternative,
    OtherJob,
    Place,
    ProcessPlace,
    Reason,
    ShellLine,
)
from hanglab.harness.report.explanation.subject import ranks_name

#: Files that were of no use, as many as leave the rest on the same screen.
SHOWN_FILES = 8
#: Other jobs that are told of; the page has all.
_SHOWN_JOBS = 8
#: Columns from which places stand side by side.
_SIDE_BY_SIDE = 100
STATUS_STYLE = {
    Status.HUNG: "red",
    Status.FAILED: "red",
    Status.CORRUPT: "red",
    Status.SLOW: "yellow",
    Status.HEALTHY: "green",
    Status.INCONCLUSIVE: "yellow",
}
_ROLES = {"culprit": "bold red", "victim": "bold yellow", "decision": "bold"}


def print_explanation(console: Console, told: Explanation, verbose: bool = False) -> None:
    """Print all of it, with the chain of evidence where ``verbose``."""
    _Printer(console, told, verbose).print()


class _Printer:
    def __init__(self, console: Console, told: Explanation, verbose: bool) -> None:
        self._console = console
        self._told = told
        self._verbose = verbose

    def print(self) -> None:
        told = self._told
        style = STATUS_STYLE[Status(told.status)]
        title = f"verdict: {told.status}"
        if told.cause is not None:
            title += f", {told.cause} (confidence {told.confidence:.2f})"
        head = Panel(
            Text(told.headline),
            title=Text(title),
            title_align="left",
            border_style=style,
            box=box.ROUNDED,
        )
        self._console.print(head)
        self._line(_numbers(told))
        for further in told.further:
            self._item(f"Also: {further}")
        self._where()
        self._reasons()
        self._section("Not", [f"{', '.join(one.causes)}: {one.why}" for one in told.excluded])
        self._section("Could still be", [_alternative(one) for one in told.alternatives])
        self._section("Would decide", told.would_decide)
        self._commands(told.do_now)
        if told.mend is not None and told.mend.text:
            self._section("Mend" if told.cause else "Next", [told.mend.text])
        self._section("In the same folder", _beside(told))
        self._unusable()
        self._chain()

    def _line(self, text: str, style: str = "", indent: int = 1) -> None:
        if text:
            self._console.print(Padding(Text(text, style=style), (0, 0, 0, indent)))

    def _title(self, title: str) -> None:
        self._console.print()
        self._line(title, "bold")

    def _item(self, text: str, mark: str = "") -> None:
        """One paragraph whose further lines stand below its first."""
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(mark), Text(text))
        self._console.print(Padding(grid, (0, 0, 0, 2 if mark else 1)))

    def _section(self, title: str, items: Sequence[str]) -> None:
        if items:
            self._title(title)
            for item in items:
                self._item(item, "-" if len(items) > 1 else " ")

    def _where(self) -> None:
        places = self._told.where
        if not places:
            return
        self._title("Where")
        blocks = [_place(place) for place in places]
        room = self._console.width // 2 - 4
        beside = self._console.width >= _SIDE_BY_SIDE and all(
            max(map(len, block.plain.splitlines())) <= room for block in blocks
        )
        if beside and len(blocks) > 1:
            table = Table.grid(padding=(0, 4, 0, 0))
            half = (len(blocks) + 1) // 2
            for left in range(half):
                table.add_row(*blocks[left::half])
            self._console.print(Padding(table, (0, 0, 0, 2)))
        else:
            for number, block in enumerate(blocks):
                self._console.print(Padding(block, (1 if number else 0, 0, 0, 2)))
        for value in self._told.values:
            self._item(value, "-")

    def _reasons(self) -> None:
        reasons = self._told.why
        if reasons:
            self._title("Why")
        for number, reason in enumerate(reasons, 1):
            self._item(_reason(reason), f"{number}.")
        if self._told.more_reasons:
            self._item(f"and {self._told.more_reasons} more; -v shows all")

    def _commands(self, lines: Sequence[ShellLine]) -> None:
        if not lines:
            return
        self._title("Do now")
        width = max(len(line.line) for line in lines)
        for line in lines:
            where = f", on {line.host}" if line.host else ""
            note = f"  # {line.purpose}{where}"
            beside = width + len(note) + 4 <= self._console.width
            if not beside:
                self._line(note.strip(), "dim", 3)
            # Never broken: it is to be copied.
            text = Text("   ").append(line.line, "cyan")
            if beside:
                text.append(" " * (width - len(line.line))).append(note, "dim")
            self._console.print(text, soft_wrap=True)

    def _unusable(self) -> None:
        unusable = self._told.unusable
        if not unusable:
            return
        self._title("Not usable")
        for file, reason in unusable[:SHOWN_FILES]:
            self._item(f"{file}: {reason}", "-")
        if len(unusable) > SHOWN_FILES:
            self._item(f"and {len(unusable) - SHOWN_FILES} more; --json lists them")

    def _chain(self) -> None:
        chain = self._told.chain
        if not chain:
            return
        if not self._verbose:
            said = "1 observation" if len(chain) == 1 else f"{len(chain)} observations"
            self._console.print()
            self._line(f"{said}; -v shows each, --json all of the verdict.", "dim")
            return
        self._title("Evidence")
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="fold")
        for one in chain:
            rank = "" if one.rank is None else str(one.rank)
            table.add_row(Text(one.source), Text(rank), Text(one.text))
        self._console.print(Padding(table, (0, 0, 0, 2)))
        if self._told.summary and self._told.summary != self._told.headline:
            self._item(f"The analyzer's summary: {self._told.summary}", " ")


def _beside(told: Explanation) -> list[str]:
    """A line for each job whose dumps lay beside those of the verdict."""
    others = told.beside
    lines = [other_job(one) for one in others[:_SHOWN_JOBS]]
    more = len(others) - len(lines)
    return [*lines, *([f"and {more} more jobs"] if more else [])]


def other_job(one: OtherJob) -> str:
    """``4 ranks of attempt_0_rank_#: healthy. No sign of ...``"""
    many = "1 rank" if one.ranks == 1 else f"{one.ranks} ranks"
    return f"{many} of {one.files}: {one.status}. {one.headline}"


def _numbers(told: Explanation) -> str:
    """Words for how many wait and since when, and for the culprits' processes."""
    parts = []
    if told.waiting and told.ranks and told.status == Status.HUNG.value:
        since = f", at least {duration(told.waited_s)}" if told.waited_s else ""
        wait = "waits" if len(told.waiting) == 1 else "wait"
        parts.append(f"{len(told.waiting)} of {told.ranks} ranks {wait}{since}.")
    together: dict[tuple[str, bool], list[ProcessPlace]] = {}
    for one in told.processes:
        if one.pid is not None:
            together.setdefault((one.host, one.gone), []).append(one)
    for (host, gone), places in together.items():
        where = f" on {host}" if host else ""
        who = ranks_name([one.rank for one in places])
        if len(places) == 1:
            are = "was process" if gone else "is process"
        else:
            are = "were processes" if gone else "are processes"
        pids = [str(one.pid) for one in places]
        numbers = " and ".join(part for part in (", ".join(pids[:-1]), pids[-1]) if part)
        parts.append(f"{who[0].upper()}{who[1:]} {are} {numbers}{where}.")
    return " ".join(parts)


def _place(place: Place) -> Text:
    """A place as lines: who, which line, its source, and the calls that led there."""
    text = Text()
    who = {"decision": "the statement that parted them"}.get(place.role, ranks_name(place.ranks))
    text.append(who, _ROLES.get(place.role, ""))
    if place.doing and place.role != "decision":
        text.append(f" {place.doing}")
    frame = place.frame
    text.append(f"\n{frame.file}:{frame.line} ({frame.function})")
    width = len(str(place.source[-1].number)) if place.source else 0
    for line in place.source:
        mark = ">" if line.marked else " "
        text.append(f"\n{mark} {line.number:>{width}} ", "bold" if line.marked else "dim")
        text.append(f"| {line.text}", "" if line.marked else "dim")
    if len(place.calls) > 1:
        way = " > ".join(f"{call.file.rsplit('/', 1)[-1]}:{call.line}" for call in place.calls)
        text.append(f"\nby way of {way}", "dim")
    return text


def _reason(reason: Reason) -> str:
    who = ranks_name(reason.ranks) if reason.ranks else ""
    who += ", each" if len(reason.ranks) > 1 else ""
    source = f" [{reason.source}]" if reason.source else ""
    return f"{who}: {reason.text}{source}" if who else f"{reason.text}{source}"


def _alternative(one: OpenAlternative) -> str:
    who = f" by {ranks_name(one.ranks)}" if one.ranks else ""
    apart = f"; {one.told_apart_by}" if one.told_apart_by else ""
    return f"{one.cause}{who} ({one.confidence:.2f}){apart}"
