"""Verdicts as people see them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from hanglab.analyzer.verdict import Inputs, Status, Unusable, Verdict
from hanglab.harness.report.explanation.explaining import explain
from hanglab.harness.report.panel import make_console
from hanglab.harness.report.verdict_text import SHOWN_FILES, print_explanation
from tools.picture import draw


def test_files_of_no_use_leave_the_evidence_on_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder with a job's output beside its dumps holds hundreds of them."""
    inputs = Inputs(unusable=[Unusable(f"file{n}", "not a dump: text") for n in range(300)])
    verdict = Verdict(status=Status.INCONCLUSIVE, summary="Nothing is known.", inputs=inputs)
    print_explanation(make_console(), explain(verdict))
    shown = capsys.readouterr().out
    assert shown.count("not a dump") == SHOWN_FILES
    assert f"and {300 - SHOWN_FILES} more; --json lists them" in shown
    assert len(shown.splitlines()) < 20
    inputs.unusable = inputs.unusable[:SHOWN_FILES]
    print_explanation(make_console(), explain(verdict))
    assert "more" not in capsys.readouterr().out


def test_the_readme_shows_what_a_terminal_shows_today() -> None:
    drawn = (Path(__file__).parents[2] / "docs" / "verdict.svg").read_text()
    assert _words(drawn) == _words(draw()), "draw it anew: make pictures"
    assert "verdict: hung, skipped_collective" in _words(drawn)
    assert "@font-face" not in drawn, "it fetches nothing"


def _words(picture: str) -> str:
    """Texts of a picture, in its order."""
    root = ElementTree.fromstring(picture)
    texts = ("".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text"))
    return " ".join(" ".join(texts).split())
