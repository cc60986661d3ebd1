"""``hanglab eval``: verdicts held against known truths, and what a heuristic changes in them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hanglab.harness.cli.backend_option import OptionalBackendName
from hanglab.harness.cli.number_checks import finite, share
from hanglab.harness.cli.run import RUNS, one_of, stopping
from hanglab.harness.cli.sources import source_path

if TYPE_CHECKING:
    import threading

    from hanglab.harness.evaluation.cases import CaseSet
    from hanglab.harness.evaluation.contenders import Contender
    from hanglab.harness.evaluation.evaluation import Evaluation
    from hanglab.harness.evaluation.judging import Judged

_PEERS = ("torchfrtrace", "nvidia-resiliency-ext")


def _bound(what: str) -> Any:
    """An option for a share that must not be crossed."""
    return typer.Option(callback=share, metavar="SHARE", help=f"{what} (0 to 1), else exit with 1.")


def evaluate(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAMES OR FILES]", help="Scenarios for --live; all without any."),
    ] = None,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Labelled Cases, their folder or URL (again for more); else hanglab's own.",
            parser=source_path,
        ),
    ] = None,
    simulated: Annotated[
        int, typer.Option(min=0, metavar="N", help="Judge N simulated jobs, too.")
    ] = 0,
    live: Annotated[bool, typer.Option("--live", help="Run scenarios and judge them.")] = False,
    mutants: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Cases that `hanglab mutate` or `run` has left.",
            parser=source_path,
        ),
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Run and judge plain scripts that a suite.json labels."),
    ] = None,
    heuristic: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.py[::NAME]", help="A heuristic to judge; nothing is installed."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A heuristic to leave out.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="BASE.json", help="Compare with what --json wrote earlier."),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar=f"[{'|'.join(_PEERS)}]",
            callback=lambda names: [one_of(_PEERS)(name) for name in names or []],
            help="Another tool to judge beside hanglab, on what it can read.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; as many as cores without it.")
    ] = None,
    backend: OptionalBackendName = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each script of a suite.")] = 1,
    hang_after: Annotated[
        float,
        typer.Option(min=0.1, callback=finite, help="Seconds without movement, of a suite."),
    ] = 3.0,
    deadline: Annotated[
        float, typer.Option(min=1, callback=finite, help="Seconds that a script may take.")
    ] = 120.0,
    json: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write hanglab.evaluation/1.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="OUT", help="Write Markdown.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="OUT", help="Write a page.")] = None,
    min_recall: Annotated[float | None, _bound("Recall that must be reached")] = None,
    min_precision: Annotated[float | None, _bound("Precision that must be reached")] = None,
    max_innocent: Annotated[float | None, _bound("Most Cases that may accuse an innocent")] = None,
    max_inconclusive: Annotated[
        float | None, _bound("Most Cases that may stay inconclusive")
    ] = None,
) -> int:
    """Hold verdicts against known truths: by cause recall, precision, innocents, calibration.

    With --heuristic or --without every Case is judged twice, and what changed is listed Case by
    Case, with an interval. Exits with 1 if a bound is crossed, with 4 if a Case cannot be judged.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hanglab.harness.errors import UsageError
    from hanglab.harness.evaluation.bounds import Bounds
    from hanglab.harness.evaluation.contenders import contenders_of
    from hanglab.harness.evaluation.evaluation import evaluate as score_all
    from hanglab.harness.evaluation.evaluation import read_evaluation
    from hanglab.harness.evaluation.heuristics import HeuristicChoice
    from hanglab.harness.evaluation.outputs import Outputs
    from hanglab.harness.evaluation.showing import print_tables
    from hanglab.harness.evaluation.tables import tables_of
    from hanglab.harness.report.panel import make_console

    wanted = Outputs(json, markdown, html)
    wanted.check()
    bounds = Bounds(min_recall, min_precision, max_innocent, max_inconclusive)
    choice = HeuristicChoice(
        # Absolute, whether it ends in ::NAME or not: workers stand in folders of their own.
        tuple(map(os.path.abspath, heuristic or [])),
        tuple(without or []),
    )
    choice.resolve()
    if suite is not None:
        other = (corpus, simulated, live, mutants, against, peer, scenarios)
        if any(other):
            raise UsageError(
                "--suite runs scripts and judges nothing else.",
                "Give it alone, with heuristics, --jobs, --repeat, outputs and bounds.",
            )
        from hanglab.harness.cli.evaluate_suite import evaluate_scripts
        from hanglab.harness.evaluation.suite.running import RunOptions

        options = RunOptions(jobs or 1, repeat, hang_after, deadline, choice)
        return evaluate_scripts(suite, backend, options, wanted, bounds)
    if backend is not None:
        raise UsageError(
            f"--backend {backend} is for --suite: nothing else runs here on one of choice.",
            "`hanglab run --backend` runs scenarios, and `hanglab eval --mutants runs/latest` "
            "judges what it left.",
        )
    if scenarios and not live:
        raise UsageError(
            f"{scenarios[0]} is for --live, which is not given.",
            "A folder of Cases is given with --corpus DIR.",
        )
    base = read_evaluation(against) if against is not None else None
    contenders = contenders_of(choice, peer or [], compared=base is None)
    workers = jobs or len(os.sched_getaffinity(0))
    with stopping() as stopped:
        sources, found = _collect(
            corpus or [], simulated, mutants or [], live, scenarios or [], workers, stopped.event
        )
        begun = time.monotonic()
        judged = _judge(found, contenders, workers, stopped.event)
    result = score_all(
        judged,
        heuristics=choice.describe(),
        sources=sources,
        planned=len(found.cases),
        broken=found.broken,
        peers=peer or [],
        base=base,
        seconds=time.monotonic() - begun,
    )
    print_tables(make_console(), tables_of(result))
    wanted.write(result)
    if stopped.signal is not None:
        typer.echo(f"hanglab: interrupted; {len(judged)} Cases had been judged", err=True)
        return 128 + stopped.signal
    return _exit_code(result, bounds.crossed(result.measures))


def _collect(
    corpora: list[Path],
    simulated: int,
    mutants: list[Path],
    live: bool,
    scenarios: list[str],
    jobs: int,
    stop: threading.Event,
) -> tuple[list[str], CaseSet]:
    """All Cases that were asked for, and where they come from."""
    from hanglab.harness.evaluation.cases import CaseSet, default_corpus, read_corpus, read_runs
    from hanglab.harness.evaluation.mutants import REPORT, read_mutants
    from hanglab.harness.report.panel import make_console

    console = make_console(errors=True)
    if not (corpora or simulated or mutants or live):
        corpora = [default_corpus()]
    found, sources = CaseSet(), []
    for corpus in corpora:
        found.add(read_corpus(corpus))
        sources.append(str(corpus))
    for folder in mutants:
        found.add((read_mutants if (folder / REPORT).is_file() else read_runs)(folder))
        sources.append(str(folder))
    if simulated:
        from hanglab.harness.evaluation.simulated import simulated_cases

        with console.status("simulating"):
            found.add(CaseSet(simulated_cases(simulated)))
        sources.append(f"{simulated} simulated jobs")
    if live:
        from hanglab.harness.evaluation.live import run_scenarios

        found.add(run_scenarios(scenarios, jobs, RUNS, console, stop))
        sources.append("scenarios run now")
    return sources, found


def _judge(
    found: CaseSet, contenders: list[Contender], jobs: int, stop: threading.Event
) -> list[Judged]:
    from hanglab.harness.evaluation.judging import judge
    from hanglab.harness.report.panel import make_console
    from hanglab.harness.report.progress import progress_of

    results = judge(found.cases, contenders, jobs, stop)
    console = make_console(errors=True)
    return list(progress_of(console, "Cases", results, len(found.cases)))


def _exit_code(result: Evaluation, crossed: list[str]) -> int:
    for sentence in crossed:
        typer.echo(f"hanglab: {sentence}", err=True)
    if result.broken:
        one = len(result.broken) == 1
        typer.echo(
            f"hanglab: {len(result.broken)} Case{'' if one else 's'} could not be judged",
            err=True,
        )
        return 4
    return 1 if crossed else 0
