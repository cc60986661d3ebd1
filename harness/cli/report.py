"""``hanglab report``: one page that shows a job, its verdict and what proves it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.sources import source_path
from hanglab.harness.report.page.job_pages import JobPages


def report(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="CASE|DUMPS|RUNFOLDER",
            help="A Case, a folder of Flight Recorder dumps, or the folder of a run; or its URL.",
            parser=source_path,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PAGE.html", help="Where the page goes.")
    ] = Path("hanglab-report.html"),
    jobs: Annotated[
        JobPages,
        typer.Option(
            "--jobs", help="Of a run: jobs that get pages of their own, in a folder beside it."
        ),
    ] = JobPages.FAILED,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a page that is there already.")
    ] = False,
) -> int:
    """Write one page that opens anywhere without a network: verdict, timeline, stacks, waits."""
    from hanglab.harness.report.output_file import check_target
    from hanglab.harness.report.page.run_page import is_run, write_run_page

    if is_run(path):
        print(*write_run_page(path, output, jobs, force=force), sep="\n")
        return 0
    from hanglab.harness.report.page.rendering import render_page, write_page

    check_target(output, force=force)
    from hanglab.harness.report.page.examined_job import load_job
    from hanglab.harness.report.page.gathering import page_data

    job = load_job(path)
    write_page(render_page(page_data(job)), output, force=force)
    print(output)
    return 0
