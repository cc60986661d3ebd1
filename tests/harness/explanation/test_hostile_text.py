"""Strangers' text in evidence: shown as it is, and obeyed by no terminal."""

from __future__ import annotations

import io
import unicodedata
from pathlib import Path

import pytest
from rich.console import Console

from hanglab.analyzer.engine import examine
from hanglab.analyzer.plain_text import MOST_SHOWN, shown
from hanglab.analyzer.verdict import (
    Cause,
    CollectiveRef,
    Decision,
    DecisionValue,
    DecisionWay,
    Evidence,
    Inputs,
    Location,
    Status,
    Unusable,
    Verdict,
)
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.explanation.explaining import explain, explain_examined
from hanglab.harness.report.verdict_text import print_explanation
from tools.corpus.__main__ import CORPUS

HOSTILE = {
    "colour and title": ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
    "C1 control": ("a\x9b31mb", "a\\x9b31mb"),
    "right to left": ("safe\u202eyp.live", "safe\\u202eyp.live"),
    "isolates": ("\u2066x\u2069", "\\u2066x\\u2069"),
    "lines": ("one\r\ntwo\u2028three", "one  two three"),
    "HTML": ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    "markup of rich": ("[bold red]x[/]", "[bold red]x[/]"),
    "lone surrogate": ("caf\udce9", "caf\\udce9"),
    "backspaces": ("rm\b\bls", "rm\\x08\\x08ls"),
    "no characters": ("\ufeffa\x00b", "\\ufeffa\\x00b"),
    "other scripts": ("训练.py été", "训练.py été"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_text_is_shown_and_not_obeyed(name: str) -> None:
    text, expected = HOSTILE[name]
    assert shown(text) == expected


def test_a_long_line_is_cut_and_counted() -> None:
    told = shown("x" * 10_000)
    assert told == "x" * MOST_SHOWN + f"… ({10_000 - MOST_SHOWN:,} more characters)"


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("width", [40, 150])
def test_a_verdict_made_of_it_is_printed_whole(name: str, width: int) -> None:
    text = HOSTILE[name][0]
    place = Location(text, 88, text, 1)
    verdict = Verdict(
        status=Status.HUNG,
        cause=Cause.SKIPPED_COLLECTIVE,
        culprits=[1],
        victims=[0],
        collective=CollectiveRef(text, text, [0, 1], 3, text),
        location=place,
        decision=Decision(
            text, 80, text, text, [DecisionWay([1], text)], [DecisionValue(1, text, text)]
        ),
        evidence=[Evidence(text, 1, text * 400)],
        summary=text,
        advice=text,
        confidence=0.9,
        inputs=Inputs(ranks=2, unusable=[Unusable(text, text)], would_decide=[text], world=text),
    )
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False, highlight=False)
    print_explanation(console, explain(verdict), verbose=True)
    printed = out.getvalue()
    bad = {c for c in printed if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}
    assert not bad
    assert "88" in printed and "Evidence" in printed


def test_what_a_job_named_so_is_copied_to_no_shell_unquoted(tmp_path: Path) -> None:
    folder = tmp_path / "a; touch x $(id)"
    unpack_entry(CORPUS, "local/collective_mismatch.fault", folder)
    lines = [one.line for one in explain_examined(examine(folder), folder).do_now]
    assert lines == [f"hanglab entries --unfinished --stacks '{folder}'"]
