"""``hanglab trace``: a job as a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.sources import source_path


def trace(
    case: Annotated[
        Path,
        typer.Argument(
            metavar="CASE|DUMPS",
            help="A Case, or a folder of dumps; a path or a URL.",
            parser=source_path,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="HANG.pftrace", help="Where it goes.")
    ] = Path("hang.pftrace"),
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there already.")
    ] = False,
) -> int:
    """Write a trace to scroll through in Perfetto: all ranks, groups, hosts, on one clock."""
    from hanglab.harness.jobs.run_folder import ArtifactsError
    from hanglab.harness.report.output_file import check_target
    from hanglab.harness.report.page.examined_job import load_job
    from hanglab.harness.report.perfetto_trace.job_trace import write_trace_file

    check_target(output, force=force)
    job = load_job(case)
    try:
        write_trace_file(job.facts, output, job.faults)
    except OSError as failure:
        raise ArtifactsError(
            f"{output} cannot be written: {failure.strerror or failure}"
        ) from failure
    print(output)
    return 0
