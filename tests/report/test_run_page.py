"""The page of a run: every job, its outcome, and the way to its own page and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import PageText, json_of, unpacked

from hanglab.harness.cli import main

HOSTILE = "javascript:alert(1)//<script>"


def result(folder: Path, name: str, variant: str, outcome: str, **more: Any) -> dict[str, Any]:
    return {
        "scenario": name,
        "variant": variant,
        "backend": "gloo",
        "repetition": 0,
        "outcome": outcome,
        "seconds": 2.04,
        "artifacts": str(folder / name / variant / "0"),
        **more,
    }


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run of which the results say that it was somewhere else when it ran."""
    run, was = tmp_path / "run", Path("/elsewhere/run")
    for name, variant in (("skipped_collective", "fault"), ("loader_stuck", "control")):
        job = run / name / variant / "0"
        job.mkdir(parents=True)
        unpacked(f"local/{name}.{variant}", job).rename(job / "case")
    verdict = {"cause": "skipped_collective", "culprits": [1], "summary": "Rank 1 left it out."}
    results = [
        result(was, "skipped_collective", "fault", "wrong verdict", verdict=verdict,
               reason="culprits should be [0], is [1]", expected={"cause": "skipped_collective"}),
        result(was, "loader_stuck", "control", "pass", verdict={"status": "healthy"}),
        result(was, HOSTILE, "fault", "skipped", artifacts=None),
    ]  # fmt: skip
    content = {"schema": "hanglab.run/1", "folder": str(was), "launcher": "local"}
    (run / "results.json").write_text(json.dumps({**content, "results": results}))
    return run


def test_a_failed_job_has_its_own_page_and_all_have_their_verdict(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "page.html"
    assert main(["report", str(run_folder), "-o", str(target)]) == 0
    own = tmp_path / "page-jobs" / "gloo-skipped_collective-fault-0.html"
    assert capsys.readouterr().out.split() == [str(target), str(own)]
    page = target.read_text()
    text = PageText(page)
    links = [attributes["href"] for tag, attributes in text.tags if tag == "a"]
    assert "page-jobs/gloo-skipped_collective-fault-0.html" in links
    assert {"#job-1", "#job-2"} <= set(links)
    assert "run/skipped_collective/fault/0/" in links
    for link in links:
        assert link is not None and (link.startswith("#") or (tmp_path / link).exists()), link
    assert "culprits should be [0], is [1]" in text.sections["verdicts"]
    assert json_of(page)["outcomes"] == {"wrong verdict": 1, "pass": 1, "skipped": 1}
    assert "skipped_collective" in PageText(own.read_text()).sections["verdict"]
    # Neither is replaced without being told to.
    assert main(["report", str(run_folder), "-o", str(target)]) == 64
    target.unlink()
    assert main(["report", str(run_folder), "-o", str(target)]) == 64
    assert main(["report", str(run_folder), "-o", str(target), "--force", "--jobs", "none"]) == 0
    assert "#job-0" in target.read_text()


def test_results_that_are_none_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("{", '{"schema": "hanglab.run/9", "results": []}'):
        (tmp_path / "results.json").write_text(text)
        assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 4
        assert "results.json" in capsys.readouterr().err


@pytest.mark.slow
def test_jobs_are_filtered_by_outcome_and_name(
    run_folder: Path, tmp_path: Path, browser: Any
) -> None:
    target = tmp_path / "page.html"
    assert main(["report", str(run_folder), "-o", str(target), "--jobs", "none"]) == 0
    said: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(target.as_uri())
    rows = page.locator("tr.job:visible")
    assert rows.count() == 3
    page.uncheck("input[value='pass']")
    assert rows.count() == 2
    page.fill("#job-search", "skipped_coll")
    assert rows.count() == 1
    assert page.locator("#jobs-shown").inner_text() == "1 of 3 shown"
    rows.locator("th a").click()
    assert page.locator("#job-0").evaluate("one => one.open")
    assert said == []
    page.close()
