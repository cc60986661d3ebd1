"""A verdict as an OpenTelemetry event, sent by OTLP over HTTP to whoever collects them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hanglab.analyzer.catalogue import Status
from hanglab.harness.errors import HanglabError, MissingExtra
from hanglab.harness.report.explanation.parts import Explanation

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter

#: Name of the event; what its attributes mean stands in docs/verdicts.md.
EVENT = "hanglab.verdict"


class EventNotSent(HanglabError):
    """Nobody took the event."""

    advice = "Name the collector in OTEL_EXPORTER_OTLP_ENDPOINT, as in http://localhost:4318."


def send_event(told: Explanation, exporter: LogRecordExporter | None = None) -> None:
    """Sends one event, by ``exporter`` or by OTLP as the environment's OTEL_ variables say.

    Raises MissingExtra, EventNotSent.
    """
    try:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import (
            LogRecordExporter,
            LogRecordExportResult,
            SimpleLogRecordProcessor,
        )
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    except ImportError as error:
        raise MissingExtra(
            "--opentelemetry needs OpenTelemetry's SDK, which is not installed.",
            "pip install 'hanglab[opentelemetry]'",
        ) from error

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
    # That it was not taken is told once, and by hanglab.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    provider.get_logger("hanglab").emit(
        LogRecord(
            timestamp=now,
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
        raise EventNotSent("The event could not be sent: no collector took it.")


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
