"""``hanglab entries`` on dumps of many ranks: ranges of ranks, and groups of a kind as one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hanglab.analyzer.flight_recorder import load_folder
from hanglab.analyzer.tables import entries_table
from hanglab.harness.cli import main


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job") / "dumps"
    words = ["--ranks", "64", "--layout", "3d", "--fault", "skip", "--operations", "30"]
    assert main(["simulate", *words, "-o", str(folder)]) == 0
    return folder


def test_many_groups_of_a_kind_are_one_row(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["entries", str(dumps)]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = entries_table(load_folder(dumps))
    assert len(table.rows) > 800 and len(lines) < 120
    assert max(map(len, lines)) <= 150
    folded = [line for line in lines if re.search(r"\(\d+ groups of \d+\)", line)]
    assert folded, "groups of a kind are one row"
    # Nobody is lost: of each kind of send as many ranks are named as made it.
    sends = [line.split("│") for line in lines if "send 0->1" in line]
    named = sum(_count(cells[2]) for cells in sends)
    made = sum(
        1
        for row in table.rows
        for cell in row.cells.values()
        if getattr(cell, "operation", None) is not None
        and (cell.operation.op, cell.operation.src, cell.operation.dst) == ("send", 0, 1)  # type: ignore[union-attr]
    )
    assert named == made > 0


def test_the_rank_that_differs_has_a_line_of_its_own(
    dumps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (truth,) = dumps.parent.glob("*.truth.json")
    (culprit,) = re.findall(r'"culprits":\s*\[\s*(\d+)\s*\]', truth.read_text())
    capsys.readouterr()
    assert main(["entries", "--unfinished", str(dumps)]) == 0
    lines = [line.split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert any(cells[2].strip() == culprit for cells in lines)
    assert len(lines) < 100


def _count(ranges: str) -> int:
    """``0-3, 8`` are five."""
    spans = [part.split("-") for part in ranges.split(",") if part.strip()]
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)
