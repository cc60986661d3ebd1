"""A folder with dumps of several jobs: the gravest is told of, and what else lay there is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pages import data_of, page_of

from hanglab.harness.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("jobs")
    for name, ranks, fault, seed in (
        ("eval", 3, "none", 1),
        ("train", 4, "skip", 2),
        ("warmup", 2, "none", 3),
    ):
        words = ["--ranks", str(ranks), "--fault", fault, "--seed", str(seed)]
        target = str(found / "dumps" / name)
        assert main(["simulate", *words, "--operations", "40", "-o", target]) == 0
    return found / "dumps"


def test_the_terminal_says_what_else_lay_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["analyze", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "verdict: hung, skipped_collective" in text
    part = text.partition("In the same folder")[2].partition("Not usable")[0]
    lines = [line for line in part.splitlines() if " ranks of " in line]
    assert sorted(" ".join(line.split()[1:6]) for line in lines) == [
        "2 ranks of warmup/nccl_trace_rank_#: inconclusive.",
        "3 ranks of eval/nccl_trace_rank_#: inconclusive.",
    ]
    assert part.count("All operations that the dumps know of are finished") == 2


def test_the_page_says_it_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = page_of(folder)
    visible = page.partition("In the same folder")[2].partition("</ul>")[0]
    assert "3 ranks of <code>eval/" in visible and "2 ranks of <code>warmup/" in visible
    told = data_of(folder).explanation.beside
    assert {one.ranks: one.status for one in told} == {2: "inconclusive", 3: "inconclusive"}
    # Nothing of it is in the verdict for programs but the files that were set aside, as before.
    capsys.readouterr()
    assert main(["analyze", "--json", str(folder)]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert len(verdict["inputs"]["set_aside"]) == 5 and "beside" not in verdict


def test_a_job_alone_has_nothing_beside_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["analyze", str(folder / "train")]) == 0
    assert "In the same folder" not in capsys.readouterr().out
