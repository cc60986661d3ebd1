"""``hanglab analyze``: the verdict on a Case or on a bare folder of dumps."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.sources import dumps_on, source_path

if TYPE_CHECKING:
    from hanglab.harness.report.explanation.parts import Explanation


def analyze(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="A Case, or a folder of Flight Recorder dumps; a path or a URL, such as s3://...",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print hanglab.verdict/1.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the whole chain of evidence.")
    ] = False,
    sarif: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write SARIF too, for code scanning pages."),
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(metavar="FILE.prom", help="Write metrics too, in Prometheus' text format."),
    ] = None,
    opentelemetry: Annotated[
        bool,
        typer.Option(
            "--opentelemetry",
            help="Send the verdict as an event too, by OTLP, to where OTEL_EXPORTER_OTLP_ENDPOINT "
            "says (http://localhost:4318 without it).",
        ),
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="local|dask://HOST:PORT",
            help="Read and summarise the dumps on a Dask cluster: a process for each core, or the "
            "workers of a scheduler.",
        ),
    ] = None,
) -> int:
    """Name the cause of a hang from what its job left behind.

    On GitHub the verdict is added to the page of the job (GITHUB_STEP_SUMMARY).
    """
    # numpy would start a thread per core for algebra that nobody asks for: a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with (
        contextlib.nullcontext(source_path(folder)) if on is None else dumps_on(on, folder) as path
    ):
        return analyze_and_show(path, as_json, verbose, sarif, prometheus, opentelemetry)


def analyze_and_show(
    folder: Path,
    as_json: bool,
    verbose: bool = False,
    sarif: Path | None = None,
    prometheus: Path | None = None,
    opentelemetry: bool = False,
) -> int:
    """Prints the verdict on a folder and gives the exit code that belongs to it."""
    from hanglab.analyzer.engine import examine
    from hanglab.analyzer.verdict import Status

    examined = examine(folder)
    if sarif or prometheus or os.environ.get("GITHUB_STEP_SUMMARY"):
        from hanglab.harness.report.explanation.explaining import explain_examined

        _write_for_machines(explain_examined(examined, folder), sarif, prometheus)
    if as_json:
        print(examined.verdict.to_json().decode())
    else:
        from hanglab.harness.report.explanation.explaining import explain_examined
        from hanglab.harness.report.panel import make_console
        from hanglab.harness.report.verdict_text import print_explanation

        print_explanation(make_console(), explain_examined(examined, folder), verbose)
    if opentelemetry:  # last: somebody may have to be waited for
        from hanglab.harness.report.explanation.explaining import explain_examined
        from hanglab.harness.report.machines.opentelemetry_event import captured_ns, send_event

        send_event(explain_examined(examined, folder), captured_ns(folder))
    return 2 if examined.verdict.status is Status.INCONCLUSIVE else 0


def _write_for_machines(told: Explanation, sarif: Path | None, prometheus: Path | None) -> None:
    """Writes what other programs read.  Raises ArtifactsError."""
    import msgspec

    from hanglab.harness.jobs.run_folder import ArtifactsError
    from hanglab.harness.report.machines import job_page
    from hanglab.harness.report.machines import prometheus as metrics
    from hanglab.harness.report.machines import sarif as scan
    from hanglab.recorder.case.folders import write_whole

    content = {}
    if sarif is not None:
        encoded = msgspec.json.encode(scan.sarif(told, Path.cwd()))
        content[sarif] = msgspec.json.format(encoded, indent=1) + b"\n"
    if prometheus is not None:
        content[prometheus] = metrics.prometheus(told).encode()
    for path, data in content.items():
        try:
            write_whole(path, data)
        except OSError as error:
            why = error.strerror or error
            raise ArtifactsError(f"{path} cannot be written: {why}") from error
    with contextlib.suppress(OSError):  # the page is an extra, the verdict is printed
        job_page.append_verdict(told)
