"""Verdicts of a watch sent to a collector of OpenTelemetry that is there, away, slow or broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from collectors import Collector, collecting
from conditions import wait_for

from hanglab.analyzer.engine import analyze
from hanglab.harness.cli import main
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.watching.events import WatchEvent
from hanglab.harness.watching.followups import Followups
from hanglab.harness.watching.telling import Teller
from hanglab.recorder.case.reader import CaseReader
from tools.corpus.__main__ import CORPUS

pytest.importorskip("opentelemetry.sdk._logs")
pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")


@contextmanager
def telling(
    monkeypatch: pytest.MonkeyPatch, port: int, again_s: float = 0.1, timeout_s: int = 3
) -> Iterator[tuple[Teller, list[str]]]:
    """A teller whose commands send to that port, and what it says.

    ``timeout_s``: until the SDK, which waits for a second before it asks again, gives a try up.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(timeout_s))
    said: list[str] = []
    teller = Teller(said.append, followups=Followups(said.append, again_s), opentelemetry=True)
    try:
        yield teller, said
    finally:
        teller.close()


def stop(tmp_path: Path, name: str = "local/loader_stuck.fault") -> WatchEvent:
    """The event of a stop that was captured into a Case of the corpus."""
    case = tmp_path / f"case-{len([*tmp_path.iterdir()])}"
    unpack_entry(CORPUS, name, case)
    return WatchEvent("stopped", "a job", "Rank 1 gets no data.", case=str(case))


def causes(collector: Collector) -> list[str]:
    return [
        one.value.string_value
        for record in collector.taken
        for one in record.attributes
        if one.key == "hanglab.cause"
    ]


def failures(said: list[str]) -> list[str]:
    return [words for words in said if "did not succeed" in words]


def test_each_verdict_is_sent_once_with_the_time_of_its_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = stop(tmp_path)
    with collecting() as collector, telling(monkeypatch, collector.port) as (teller, said):
        teller.tell(event)
        # There is no Case of it.
        teller.tell(WatchEvent("resumed", "a job", "It moves again."))
        wait_for(lambda: teller.unsent == 0, "the event to be sent")
    assert causes(collector) == ["loader_stuck"]
    job = CaseReader(Path(event.case or "")).job
    assert job is not None and job.trigger is not None
    (record,) = collector.taken
    assert record.time_unix_nano == job.trigger.at.wall_ns < record.observed_time_unix_nano
    assert not failures(said)


def test_an_undecided_verdict_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = stop(tmp_path)
    case = Path(event.case or "")
    for evidence in case.glob("hosts/*/ranks/*/*"):
        if evidence.name != "process.json":
            evidence.unlink()
    assert analyze(case).status.value == "inconclusive"
    with collecting() as collector, telling(monkeypatch, collector.port) as (teller, said):
        teller.tell(event)
        wait_for(lambda: teller.unsent == 0, "the event to be sent")
        assert collector.came == 1
    assert [record.severity_text for record in collector.taken] == ["WARN"]
    assert not failures(said)


@pytest.mark.slow
def test_a_collector_that_is_away_gets_all_once_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as gone:
        pass
    names = ["local/loader_stuck.fault", "local/skipped_collective.fault"]
    with telling(monkeypatch, gone.port) as (teller, said):
        for name in names:
            teller.tell(stop(tmp_path, name))
        wait_for(lambda: len(failures(said)) >= 2, "both failures to be said")
        with collecting(gone.port) as collector:
            wait_for(lambda: teller.unsent == 0, "the events to be sent")
    assert sorted(causes(collector)) == ["loader_stuck", "skipped_collective"]
    for words in failures(said):
        assert words == (
            "hanglab analyze did not succeed, and is tried again: The event could not be sent: no "
            "collector took it (Connection refused)."
        )
    assert not any("left undone" in words or "given up" in words for words in said)


def test_a_collector_with_an_error_of_its_own_gets_the_event_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector, telling(monkeypatch, collector.port) as (teller, said):
        collector.answers += [500, 500]
        teller.tell(stop(tmp_path))
        wait_for(lambda: teller.unsent == 0, "the event to be sent")
    assert causes(collector) == ["loader_stuck"]
    (words,) = set(failures(said))
    assert words.endswith("no collector took it (it answered 500).")


def test_a_slow_collector_has_nobody_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        collecting() as collector,
        telling(monkeypatch, collector.port, timeout_s=1) as (teller, said),
    ):
        collector.awake.clear()
        teller.tell(stop(tmp_path))
        wait_for(lambda: collector.came, "the first try")
        # It is asked and does not answer; others are told meanwhile.
        teller.tell(WatchEvent("failed", "another job", "Another job failed."))
        assert "Another job failed." in said
        assert teller.unsent == 1
        wait_for(lambda: failures(said), "the failure to be said")
        assert "no collector took it (it did not answer in time)" in failures(said)[0]
        collector.awake.set()
        wait_for(lambda: teller.unsent == 0, "the event to be sent")
    assert "loader_stuck" in causes(collector)


def test_at_the_end_what_waits_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector, telling(monkeypatch, collector.port, 3600.0) as (teller, said):
        collector.answers += [500]
        teller.tell(stop(tmp_path))
        wait_for(lambda: failures(said), "the failure to be said")
        teller.tell(stop(tmp_path))
    assert causes(collector) == ["loader_stuck"] * 2
    assert not any("left undone" in words for words in said)


def test_at_the_end_what_nobody_took_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = stop(tmp_path)
    with collecting() as collector:
        collector.answers += [404] * 3
        with telling(monkeypatch, collector.port, 3600.0) as (teller, said):
            teller.tell(event)
            wait_for(lambda: failures(said), "the failure to be said")
    assert said[-2:] == [
        "hanglab analyze did not succeed: The event could not be sent: no collector took it "
        "(it answered 404).",
        f"left undone: hanglab analyze {event.case} --opentelemetry --json",
    ]
    assert (collector.came, collector.taken) == (2, [])


def test_without_the_extra_a_watch_says_so_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry._logs", None)
    assert main(["watch", "--opentelemetry", "--state", str(tmp_path), "--until-idle", "1"]) == 4
    said = capsys.readouterr().err
    assert "pip install 'hanglab[opentelemetry]'" in said and "watching" not in said
