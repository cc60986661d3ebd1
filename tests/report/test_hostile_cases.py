"""Names and texts of Cases that are meant to do harm: shown by all commands, obeyed by none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile_cases import FORBIDDEN, hostile_case
from pages import PageText, json_of, page_of

from hanglab.analyzer.engine import examine
from hanglab.harness.cli import main
from tools.corpus.__main__ import CORPUS

#: A hang with stacks and groups, an exception with its message, one with sections and scores.
ENTRIES = (
    "local/group_order.fault",
    "local/exception.fault",
    "local/slow_backward.fault",
    "local/loader_stuck.fault",
    "nccl-emulated/gpu_off_the_bus.fault",
    "local/disk_full.fault",
)
COMMANDS = (
    ("analyze",),
    ("analyze", "-v"),
    ("entries",),
    ("entries", "--stacks", "--unfinished"),
    ("stragglers",),
)


@pytest.fixture(params=ENTRIES)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return hostile_case(request.param, tmp_path, monkeypatch)


def test_terminals_show_them_and_obey_none(
    case: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for command in COMMANDS:
        assert main([*command, str(case)]) in (0, 2), command
        printed = capsys.readouterr()
        for text in (printed.out, printed.err):
            bad = {one for one in text if one != "\n" and not one.isprintable()}
            assert not bad, (command, bad)
            # Lines to be copied are as long as they must be.
            lines = [one for one in text.splitlines() if str(case) not in one]
            # A table of sections is as wide as they are many, where no terminal is.
            most = 800 if command == ("stragglers",) else 200
            assert max(map(len, lines), default=0) <= most, command
            assert len(text) < 60_000, command


def test_files_for_other_programs_hold_them_as_text(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    scan, metrics, page = (tmp_path / name for name in ("x.sarif", "x.prom", "x.md"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    options = ["--sarif", str(scan), "--prometheus", str(metrics), "--json"]
    assert main(["analyze", *options, str(case)]) in (0, 2)
    assert json.loads(capsys.readouterr().out)["schema"] == "hanglab.verdict/1"
    for file in (scan, metrics, page):
        text = file.read_text(encoding="utf-8")
        assert not [one for one in FORBIDDEN if one in text], file.name
        assert "<img" not in page.read_text() and "<script" not in page.read_text()
    json.loads(scan.read_text())


def test_a_page_shows_them_as_text(case: Path) -> None:
    page = page_of(case)
    page.encode("utf-8")
    text = PageText(page)
    assert [tag for tag, _ in text.tags].count("script") == 3
    assert not [attributes for _, attributes in text.tags if "onerror" in attributes]
    assert not [tag for tag, _ in text.tags if tag == "img"]
    assert not [one for one in FORBIDDEN if one in page]
    assert json_of(page)["schema"] == "hanglab.page/1"
    assert len(page) < 4_000_000


def test_a_trace_holds_them_as_text(case: Path, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    target = tmp_path / "x.pftrace"
    assert main(["trace", str(case), "-o", str(target)]) == 0
    data = target.read_bytes()
    for harmful in ("\x1b[31m", "\x1b]0;", "\u202e"):
        assert harmful.encode() not in data


def test_they_change_no_verdict(case: Path, request: pytest.FixtureRequest) -> None:
    entry = request.node.callspec.params["case"]
    frozen = json.loads((CORPUS / f"{entry}.json").read_bytes())["verdict"]
    verdict = examine(case).verdict
    assert (verdict.status.value, verdict.cause and verdict.cause.value, verdict.culprits) == (
        frozen["status"],
        frozen["cause"],
        frozen["culprits"],
    )
