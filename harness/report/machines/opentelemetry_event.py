"""A verdict as an OpenTelemetry event, sent by OTLP over HTTP to whoever collects them."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanglab.analyzer.catalogue import Status
from hanglab.harness.errors import HanglabError, MissingExtra
from hanglab.harness.report.explanation.parts import Explanation
from hanglab.recorder.case.reader import CaseReader, NotACase

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter

#: Name of the event; what its attributes mean stands in docs/verdicts.md.
EVENT = "hanglab.verdict"
#: Longest reason of a failure, in characters.
_LONGEST = 200


class EventNotSent(HanglabError):
    """Nobody took the event."""

    advice = "Name the collector in OTEL_EXPORTER_OTLP_ENDPOINT, as in http://localhost:4318."


def need_sdk() -> None:
    """Raises MissingExtra where OpenTelemetry's SDK is not installed."""
    try:
        import opentelemetry._logs
        import opentelemetry.exporter.otlp.proto.http._log_exporter
        import opentelemetry.sdk._logs.export  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "--opentelemetry needs OpenTelemetry's SDK, which is not installed.",
            "pip install 'hanglab[opentelemetry]'",
        ) from error


def send_event(
    told: Explanation, captured_ns: int | None = None, exporter: LogRecordExporter | None = None
) -> None:
    """Sends one event, by ``exporter`` or by OTLP as the environment's OTEL_ variables say.

    ``captured_ns`` is the wall time that the verdict is of; now without it.
    Raises MissingExtra, EventNotSent.
    """
    need_sdk()
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import (
        LogRecordExporter,
        LogRecordExportResult,
        SimpleLogRecordProcessor,
    )
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    class Noting(LogRecordExporter):
        """Passes records on and notes whether they were taken: the SDK tells nobody."""

        def __init__(self, inner: LogRecordExporter) -> None:
            self._inner = inner
            self.taken = False

        def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
            result = self._inner.export(batch)
            self.taken = result is LogRecordExportResult.SUCCESS
            return result

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return self._inner.force_flush(timeout_millis)

        def shutdown(self) -> None:
            self._inner.shutdown()  # type: ignore[no-untyped-call]

    severity = {
        Status.HEALTHY.value: SeverityNumber.INFO,
        Status.SLOW.value: SeverityNumber.WARN,
        Status.INCONCLUSIVE.value: SeverityNumber.WARN,
    }.get(told.status, SeverityNumber.ERROR)
    noting = Noting(exporter or OTLPLogExporter())
    # Whoever names the service in OTEL_SERVICE_NAME is heard.
    resource = Resource.create({} if _is_named() else {SERVICE_NAME: "hanglab"})
    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(noting))
    now = time.time_ns()
    with _overheard() as failure:
        provider.get_logger("hanglab").emit(
            LogRecord(
                timestamp=now if captured_ns is None else captured_ns,
                observed_timestamp=now,
                event_name=EVENT,
                severity_number=severity,
                severity_text=severity.name,
                body=told.headline,
                attributes=attributes(told),
            )
        )
        provider.shutdown()
    if not noting.taken:
        why = f" ({failure.reason})" if failure.reason else ""
        raise EventNotSent(f"The event could not be sent: no collector took it{why}.")


class _OverheardFailure(logging.Handler):
    """The reason of a failure, from the SDK's log: it tells it nowhere else."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, int) and 100 <= argument < 600:
                self.reason = f"it answered {argument}"
                return
            if isinstance(argument, Exception):
                root: BaseException = argument
                while inner := root.__cause__ or root.__context__:
                    root = inner
                words = getattr(root, "strerror", None) or str(root) or type(root).__name__
                self.reason = str(words)[:_LONGEST]
                return
        if "timeout" in record.getMessage() and not self.reason:
            self.reason = "it did not answer in time"


@contextlib.contextmanager
def _overheard() -> Iterator[_OverheardFailure]:
    """The SDK's log goes nowhere else meanwhile: hanglab tells what is in it, and once."""
    log, failure = logging.getLogger("opentelemetry"), _OverheardFailure()
    passes_on = log.propagate
    log.propagate = False
    log.addHandler(failure)
    try:
        yield failure
    finally:
        log.removeHandler(failure)
        log.propagate = passes_on


def captured_ns(case: Path) -> int | None:
    """Wall time at which a Case was captured; None where it does not tell, or is none."""
    try:
        job = CaseReader(case).job
    except (NotACase, OSError):
        return None
    return job.trigger.at.wall_ns if job is not None and job.trigger is not None else None


def _is_named() -> bool:
    """True if the environment names the service."""
    attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return "OTEL_SERVICE_NAME" in os.environ or "service.name=" in attributes


def attributes(told: Explanation) -> dict[str, Any]:
    """Attributes of the event; what is not known has none."""
    found: dict[str, Any] = {
        "hanglab.status": told.status,
        "hanglab.confidence": told.confidence,
        "hanglab.ranks": told.ranks,
        "hanglab.culprits": list(told.culprits),
        "hanglab.waiting": list(told.waiting),
    }
    if told.cause is not None:
        found["hanglab.cause"] = told.cause
    if told.waited_s is not None:
        found["hanglab.waited_s"] = told.waited_s
    known = [one for one in told.processes if one.pid is not None]
    if known:
        found["hanglab.culprit.pids"] = [one.pid for one in known]
        found["hanglab.culprit.hosts"] = [one.host for one in known]
    place = next((place for place in told.where if place.role == "culprit"), None)
    if place is not None:
        found["code.file.path"] = place.frame.file
        found["code.line.number"] = place.frame.line
        found["code.function.name"] = place.frame.function
    if told.mend is not None:
        found["hanglab.mend"] = told.mend.text
    return found
