"""``hanglab replay``: a recorded hang, run once more for real."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.number_checks import finite
from hanglab.harness.cli.run import RUNS, stopping

if TYPE_CHECKING:
    from hanglab.harness.jobs.run import Result
    from hanglab.harness.jobs.run_folder import RunFolder


def replay(
    source: Annotated[
        Path,
        typer.Argument(metavar="CASE|DUMPS", help="A Case, or a folder of Flight Recorder dumps."),
    ],
    speed: Annotated[
        float,
        typer.Option(
            min=0,
            callback=finite,
            metavar="X",
            help="Make calls at the pace of the job, X times as fast; 0 without any pause.",
        ),
    ] = 0.0,
    true_sizes: Annotated[
        bool, typer.Option("--true-sizes", help="Tensors as large as the job's; small without it.")
    ] = False,
    hang_after: Annotated[
        float, typer.Option(min=0.5, callback=finite, help="Seconds without movement.")
    ] = 3.0,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds that the run may take.")] = 120.0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the runs' artifacts.")
    ] = RUNS,
) -> int:
    """Run the calls of a recorded job again, on gloo, and compare the verdicts.

    What is taken for granted, and what differs from the job, is listed. Calls are replayed, and
    nothing else of the job: whatever else kept a rank from its next call comes out as missing_rank.

    Exits with 0 if cause, culprits and operation are the same; 1 if one differs; 2 if the
    original is inconclusive or no Program follows from it; 3 if the replay does not hang.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hanglab.analyzer.replayable import open_operations, read_replayable
    from hanglab.harness.errors import MissingExtra
    from hanglab.harness.jobs.run_folder import RunFolder
    from hanglab.harness.replay.comparison import EXIT_CODES, compare_verdicts
    from hanglab.harness.replay.script import write_script
    from hanglab.harness.report.panel import make_console
    from hanglab.harness.system import capabilities

    torch = capabilities.capability("torch")
    if not torch.available:
        raise MissingExtra("`hanglab replay` needs torch, which is not installed.", torch.remedy)
    job = read_replayable(source)
    folder = RunFolder.create(out.absolute())
    differences = write_script(job, folder.path, true_sizes=true_sizes, speed=speed)
    console = make_console()
    for title, sentences in (("assumed", job.assumptions), ("differs", differences)):
        for sentence in sentences:
            console.print(f"{title}: {sentence}", markup=False, highlight=False, soft_wrap=True)
    result, code = _run(folder, len(job.calls), hang_after, deadline)
    if code:
        typer.echo(f"hanglab: interrupted; {folder.path} holds what had been done", err=True)
        return code
    if result is None or result.verdict is None:
        reason = result.judgement.reason if result else "the run has no result"
        typer.echo(f"hanglab: {reason}", err=True)
        return 4
    waiting: set[tuple[str, tuple[int, ...]]] = set()
    if job.backend != "gloo" and result.folder is not None:
        waiting = open_operations(result.folder / "case", job.verdict.culprits)
    comparison = compare_verdicts(job.verdict, result.verdict, waiting)
    console.print(comparison.table())
    console.print(f"{comparison.outcome}; {folder.path} holds the replay and its Case")
    return EXIT_CODES[comparison.outcome]


def _run(
    folder: RunFolder, ranks: int, hang_after: float, deadline: float
) -> tuple[Result | None, int]:
    """Runs the script; its result, and an exit code where a signal ended it."""
    from hanglab.harness.jobs import suite
    from hanglab.harness.launchers.selection import Launchers
    from hanglab.harness.report.panel import make_console
    from hanglab.harness.report.progress import RunProgress

    options = suite.Options(
        world_size=ranks, control=False, hang_after_s=hang_after, deadline_s=deadline
    )
    scenario = suite.script_scenario(folder.path / "replay.py", options)
    requests = suite.requests_of(scenario, options)
    progress = RunProgress(make_console(errors=True), requests)
    with progress.shown(), stopping() as stopped:
        launchers = Launchers()
        try:
            results = suite.run_all(requests, folder, launchers, 1, stopped.event, progress)
        finally:
            launchers.close()
    suite.write_results(folder, options, results)
    return (results[0] if results else None), 128 + stopped.signal if stopped.signal else 0
