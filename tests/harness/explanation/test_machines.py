"""Verdicts for other programs."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

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


class Collector(BaseHTTPRequestHandler):
    """Takes what is sent to a collector of OpenTelemetry."""

    received: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_collector_gets_the_verdict_as_an_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    logs = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    case = tmp_path / "case"
    unpack_entry(CORPUS, "local/loader_stuck.fault", case)
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        assert main(["analyze", "--opentelemetry", str(case)]) == 0
        server.shutdown()
    ((path, body),) = Collector.received
    assert path == "/v1/logs"
    (resource,) = logs.ExportLogsServiceRequest.FromString(body).resource_logs
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert named["service.name"] == "hanglab"
    (record,) = resource.scope_logs[0].log_records
    assert (record.event_name, record.severity_text) == ("hanglab.verdict", "ERROR")
    assert record.body.string_value.startswith("Rank 1 gets no data")
    told = {one.key: one.value for one in record.attributes}
    assert told["hanglab.cause"].string_value == "loader_stuck"
    assert [one.int_value for one in told["hanglab.culprits"].array_value.values] == [1]
    assert [one.int_value for one in told["hanglab.waiting"].array_value.values] == [0, 2, 3]
    assert told["code.line.number"].int_value == 26
    assert told["code.file.path"].string_value.endswith("/loader_stuck.py")
    # The port is nobody's any more.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    assert main(["analyze", "--opentelemetry", str(case)]) == 4
    printed = capsys.readouterr()
    assert "no collector took it" in printed.err and printed.err.count("\n") == 2
    assert printed.out.count("verdict: hung") == 2, "the verdict is printed all the same"


def test_without_the_extra_the_verdict_is_printed_and_the_extra_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack_entry(CORPUS, "local/loader_stuck.fault", tmp_path / "case")
    monkeypatch.setitem(sys.modules, "opentelemetry._logs", None)
    assert main(["analyze", "--opentelemetry", str(tmp_path / "case")]) == 4
    printed = capsys.readouterr()
    assert "verdict: hung" in printed.out
    assert "pip install 'hanglab[opentelemetry]'" in printed.err


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
