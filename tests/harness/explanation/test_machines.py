"""Verdicts for other programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanglab.analyzer.verdict import Cause, Evidence, Location, Status, Verdict
from hanglab.harness.cli import main
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.explanation.explaining import explain
from hanglab.harness.report.machines.job_page import verdict_markdown
from hanglab.harness.report.machines.prometheus import prometheus
from hanglab.harness.report.machines.sarif import sarif
from tools.corpus.__main__ import CORPUS


def hostile() -> Verdict:
    return Verdict(
        status=Status.FAILED,
        cause=Cause.EXCEPTION,
        culprits=[1],
        victims=[0],
        location=Location("/srv/my job/<b>.py", 7, "f", 1),
        evidence=[Evidence("exceptions", 1, "E: ![x](http://e) <img src=x> ```sh @team")],
        confidence=0.9,
        summary="s",
        advice=Cause.EXCEPTION.advice,
    )


def test_analyze_writes_for_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, page = tmp_path / "case", tmp_path / "page"
    unpack_entry(CORPUS, "local/loader_stuck.fault", case)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    scan, metrics = tmp_path / "hang.sarif", tmp_path / "hang.prom"
    options = ["--sarif", str(scan), "--prometheus", str(metrics)]
    assert main(["analyze", *options, str(case)]) == 0
    assert "Rank 1 gets no data" in capsys.readouterr().out
    (run,) = json.loads(scan.read_text())["runs"]
    (result,) = run["results"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["loader_stuck"]
    assert (result["ruleId"], result["level"]) == ("loader_stuck", "error")
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 26}
    assert place["artifactLocation"]["uri"].endswith("/data_starvation/loader_stuck.py")
    assert [one["message"]["text"] for one in result["relatedLocations"]] == [
        "ranks 0, 2, 3 in all_reduce #15 of default_pg"
    ]
    assert 'hanglab_verdict_info{status="hung",cause="loader_stuck"} 1\n' in metrics.read_text()
    assert 'hanglab_culprit{rank="1",host="node0",pid="5603"} 1\n' in metrics.read_text()
    assert "hanglab_waiting_ranks 3\n" in metrics.read_text()
    assert page.read_text().startswith("## hanglab: hung, `loader_stuck`\n\n**Rank 1 gets no data")
    assert main(["analyze", "--sarif", str(tmp_path / "no" / "x"), str(case)]) == 4
    assert "cannot be written" in capsys.readouterr().err


def test_a_healthy_job_is_no_result(tmp_path: Path) -> None:
    assert sarif(explain(Verdict(status=Status.HEALTHY)))["runs"][0]["results"] == []


def test_what_a_job_has_named_is_markup_nowhere(tmp_path: Path) -> None:
    told = explain(hostile())
    result = sarif(told, Path("/srv"))["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "my%20job/%3Cb%3E.py"
    page = verdict_markdown(told)
    assert "<img" not in page and "![x]" not in page and "\\@team" in page
    assert page.count("```") == 0
    odd = explain(Verdict(status=Status.HUNG, cause=Cause.CRASH, culprits=[1]))
    assert prometheus(odd).count("# TYPE") == 5
