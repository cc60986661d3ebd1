"""``hanglab replay``: a recorded hang, run once more for real."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.backend_option import BackendName, require_backend
from hanglab.harness.cli.number_checks import finite
from hanglab.harness.cli.run import RUNS, stopping
from hanglab.harness.cli.sources import source_path
from hanglab.harness.scenarios.number_bounds import MOST_RANKS
from hanglab.recorder.case.backends import DEFAULT_BACKEND, backend_of
from hanglab.recorder.case.operations import op_of

if TYPE_CHECKING:
    from hanglab.analyzer.replayable import ReplayableJob
    from hanglab.analyzer.verdict import Verdict
    from hanglab.harness.jobs.plan import Options
    from hanglab.harness.jobs.run import Result
    from hanglab.harness.jobs.run_folder import RunFolder
    from hanglab.harness.replay.comparison import ReplayComparison


def replay(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="CASE|DUMPS",
            help="A Case, or a folder of Flight Recorder dumps; a path or a URL.",
            parser=source_path,
        ),
    ],
    backend: BackendName = DEFAULT_BACKEND,
    world_size: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=MOST_RANKS,
            help="Run so many of its ranks alone, chosen so that they hang for the same reason.",
        ),
    ] = None,
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
    deadline: Annotated[
        float, typer.Option(min=1, callback=finite, help="Seconds that the run may take.")
    ] = 120.0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the runs' artifacts.")
    ] = RUNS,
) -> int:
    """Run the calls of a recorded job again, and compare the verdicts.

    What is taken for granted, and what differs from the job, is listed. Calls are replayed, and
    how ranks ended by their evidence: an exit, an exception, a stopped process, a lock, a loader.
    Whatever else kept a rank from its next call comes out as missing_rank.

    Exits with 0 if cause, culprits and operation are the same; 1 if one differs; 2 if the
    original is inconclusive or no Program follows from it; 3 if the replay does not hang.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hanglab.analyzer.hang_similarity import with_device_waits
    from hanglab.analyzer.replayable import read_replayable
    from hanglab.analyzer.simulated_verdict import semantics_of
    from hanglab.harness.jobs.plan import Options
    from hanglab.harness.jobs.run_folder import RunFolder
    from hanglab.harness.replay.comparison import EXIT_CODES
    from hanglab.harness.replay.script import write_script
    from hanglab.harness.report.panel import make_console

    require_backend("hanglab replay", backend)
    job = read_replayable(source)
    original, ranks = job.verdict, list(range(len(job.calls)))
    if semantics_of(backend) == "nccl":
        on_device = with_device_waits(job)
        job = job if on_device is None else on_device[0]
    if world_size is not None:
        job, ranks = _cut(job, world_size, backend)
    folder = RunFolder.create(out.absolute())
    differences = write_script(
        job, folder.path, backend=backend, true_sizes=true_sizes, speed=speed
    )
    console = make_console()
    for title, sentences in (("assumed", job.assumptions), ("differs", differences)):
        for sentence in sentences:
            console.print(f"{title}: {sentence}", markup=False, highlight=False, soft_wrap=True)
    if world_size is not None:
        which = ", ".join(map(str, ranks))
        console.print(f"ranks: {which} of the job run alone, as ranks 0 to {len(ranks) - 1}")
    options = Options(
        backend=backend,
        world_size=len(ranks),
        control=False,
        hang_after_s=hang_after,
        deadline_s=deadline,
    )
    result, code = _run(folder, options)
    if code:
        typer.echo(f"hanglab: interrupted; {folder.path} holds what had been done", err=True)
        return code
    if result is None or result.verdict is None:
        reason = result.judgement.reason if result else "the run has no result"
        typer.echo(f"hanglab: {reason}", err=True)
        return 4
    comparison = _compare(job, original, ranks, result)
    console.print(comparison.table())
    console.print(f"{comparison.outcome}; {folder.path} holds the replay and its Case")
    return EXIT_CODES[comparison.outcome]


def _cut(job: ReplayableJob, size: int, backend: str) -> tuple[ReplayableJob, list[int]]:
    """The job of ``size`` of its ranks, and which they are.  Raises UsageError, NotReplayable."""
    from hanglab.analyzer.hang_similarity import cut_ranks
    from hanglab.analyzer.simulated_verdict import semantics_of
    from hanglab.harness.errors import UsageError

    if size > len(job.calls):
        raise UsageError(f"The job has {len(job.calls)} ranks, not {size}.", "Give fewer, or none.")
    if size == len(job.calls):
        return job, list(range(size))
    job, ranks = cut_ranks(job, size, semantics_of(backend))
    return job, list(ranks)


def _compare(
    job: ReplayableJob, original: Verdict, ranks: Sequence[int], result: Result
) -> ReplayComparison:
    """Both verdicts in the numbers of the original's ranks."""
    from hanglab.analyzer.replayable import open_operations
    from hanglab.harness.replay.comparison import compare_verdicts, of_ranks, renumbered

    assert result.verdict is not None
    waiting: set[tuple[str, tuple[int, ...]]] = set()
    named = original.collective
    # A verdict names one of many calls that are open at once, as ends of messages may be.
    many = backend_of(job.backend).enqueued or (named is not None and op_of(named.op).p2p)
    if many and result.folder is not None:
        culprits = [place for place, rank in enumerate(ranks) if rank in original.culprits]
        waiting = {
            (op, tuple(ranks[member] for member in members))
            for op, members in open_operations(result.folder / "case", culprits)
        }
    return compare_verdicts(of_ranks(original, ranks), renumbered(result.verdict, ranks), waiting)


def _run(folder: RunFolder, options: Options) -> tuple[Result | None, int]:
    """Runs the script; its result, and an exit code where a signal ended it."""
    from hanglab.harness.jobs.plan import requests_of, script_scenario
    from hanglab.harness.jobs.results import write_results
    from hanglab.harness.jobs.running import run_all
    from hanglab.harness.launchers.selection import Launchers
    from hanglab.harness.report.panel import make_console
    from hanglab.harness.report.progress import RunProgress

    scenario = script_scenario(folder.path / "replay.py", options)
    requests = requests_of(scenario, options)
    progress = RunProgress(make_console(errors=True), requests)
    with progress.shown(), stopping() as stopped:
        launchers = Launchers()
        try:
            results = run_all(requests, folder, launchers, 1, stopped.event, progress)
        finally:
            launchers.close()
    write_results(folder, options, results, interrupted=stopped.signal is not None)
    return (results[0] if results else None), 128 + stopped.signal if stopped.signal else 0
