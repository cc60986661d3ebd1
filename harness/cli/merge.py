"""``hanglab merge``: runs of shards on several machines as one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.run_folders import RunFolders

if TYPE_CHECKING:
    from hanglab.harness.jobs.stored_run import StoredRun


def merge(
    runs: RunFolders,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="A new folder for the results.")
    ],
    junit: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A JUnit file to unite with others (again for each)."),
    ] = None,
    incomplete: Annotated[
        bool,
        typer.Option("--incomplete", help="Unite what there is; exits with 4 if jobs are missing."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> int:
    """Unite runs of shards: results.json, summary.md, and with --junit one junit.xml.

    Refuses runs in which a job is twice, of which shards are missing, or of several versions. The
    exit code is that of `hanglab run` over all jobs. Artifacts stay where they are; `hanglab report
    DIR` makes one page of all.
    """
    from hanglab.harness.cli.new_folders import check_unused
    from hanglab.harness.jobs.run_folder import RESULTS, write_json, write_new
    from hanglab.harness.jobs.stored_run import find_runs
    from hanglab.harness.merging import fitting
    from hanglab.harness.merging.junit import to_text, unite_junit
    from hanglab.harness.merging.union import rows_of, unite
    from hanglab.harness.report.markdown import append_to_job_page, markdown

    check_unused(output)
    found = find_runs(runs)
    fitting.check_jobs(found)
    fitting.check_versions(found)
    missing = fitting.missing_shards(found)
    if not incomplete:
        fitting.check_complete(found, missing)
    united_junit = to_text(unite_junit(junit)) if junit else None
    run = unite(found, missing, output)
    rows = rows_of(run)
    _make(output)
    if united_junit is not None:
        write_new(output / "junit.xml", united_junit)
    write_new(output / "summary.md", markdown(rows))
    write_json(output / RESULTS, run)
    append_to_job_page(rows)
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(run)).decode())
    else:
        _show(run, len(found), output)
    return 4 if missing or run.interrupted else run.exit_code


def _make(folder: Path) -> None:
    from hanglab.harness.jobs.run_folder import ArtifactsError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ArtifactsError(f"{folder} cannot be created: {failure.strerror}.") from failure


def _show(run: StoredRun, count: int, folder: Path) -> None:
    """Jobs that did not pass, and the number of all."""
    from rich.text import Text

    from hanglab.harness.jobs.outcome import Outcome
    from hanglab.harness.merging.union import rows_of
    from hanglab.harness.report.markdown import counts
    from hanglab.harness.report.panel import make_console
    from hanglab.harness.report.results import OUTCOME_STYLE

    console = make_console()
    for job in run.results:
        if job.outcome not in (Outcome.PASS, Outcome.SKIPPED):
            style = OUTCOME_STYLE[job.outcome]
            console.print(
                Text.assemble(
                    (job.outcome.value, style), "  ", (job.title, "bold"), f"  {job.reason}"
                )
            )
            if job.artifacts:
                console.print(Text(f"    artifacts  {job.artifacts}"))
    if run.missing_shards:
        console.print(Text(f"missing shards: {', '.join(map(str, run.missing_shards))}", "red"))
    if run.interrupted:
        console.print(Text("a run was interrupted: jobs of it are missing", "red"))
    console.print(Text(f"{counts(rows_of(run))}; of {count} results files, now in {folder}"))
