"""Branch coverage by room, of a JSON report of coverage's.

``python -m tools.room_coverage REPORT [EARLIER]`` prints a table; rooms that both reports know are
laid side by side.  Run by ``make coverage``.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Reached:
    """Counts of branches and statements, and how many of them ran."""

    branches: int = 0
    branches_run: int = 0
    statements: int = 0
    statements_run: int = 0

    def add(self, other: Reached) -> None:
        self.branches += other.branches
        self.branches_run += other.branches_run
        self.statements += other.statements
        self.statements_run += other.statements_run

    def percent(self) -> str:
        """Per cent of the branches; of the statements where code has no branch."""
        whole = self.branches or self.statements
        if not whole:
            return "-"
        return f"{100 * (self.branches_run if self.branches else self.statements_run) / whole:.1f}"


def room_of(path: str, root: Path) -> tuple[str, str]:
    """Package and room of a source file: `recorder`, `recorder/case`.

    Modules at the top of a package make a room of their own; scenarios are one room.
    """
    parts = Path(path).relative_to(root).parts if Path(path).is_absolute() else Path(path).parts
    package = parts[0]
    if package == "scenarios":
        return package, package
    return package, f"{package}/{parts[1]}" if len(parts) > 2 else f"{package}/*.py"


def by_room(report: Path, root: Path) -> dict[str, Reached]:
    """Counts of each room, of each package of several rooms, and of `all`, in that order."""
    rooms: defaultdict[str, Reached] = defaultdict(Reached)
    for path, file in json.loads(report.read_bytes())["files"].items():
        summary = file["summary"]
        if not summary["num_statements"]:
            continue
        one = Reached(
            summary["num_branches"],
            summary["covered_branches"],
            summary["num_statements"],
            summary["covered_lines"],
        )
        package, room = room_of(path, root)
        for name in {room, package, "all"}:
            rooms[name].add(one)
    return dict(sorted(rooms.items(), key=lambda item: (item[0] == "all", item[0])))


def table(now: dict[str, Reached], earlier: dict[str, Reached] | None) -> str:
    """A Markdown table of per cents of branches; a dash where a report does not know the room."""
    columns = ["package, room", "branches run, %", "branches", "statements"]
    if earlier is not None:
        columns.insert(1, "earlier, %")
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    names = sorted({*now, *(earlier or ())}, key=lambda name: (name == "all", name))
    for name in names:
        one = now.get(name, Reached())
        cells = [name, one.percent(), f"{one.branches:,}", f"{one.statements:,}"]
        if earlier is not None:
            cells.insert(1, earlier[name].percent() if name in earlier else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    root = Path(__file__).resolve().parents[1]
    rooms = [by_room(Path(argument), root) for argument in arguments[:2]]
    print(table(rooms[0], rooms[1] if len(rooms) > 1 else None))


if __name__ == "__main__":
    main(sys.argv[1:])
