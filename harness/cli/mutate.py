"""``hanglab mutate``: a training script broken on purpose, one mutant at a time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.backend_option import BackendName, require_backend
from hanglab.harness.cli.new_folders import check_unused
from hanglab.harness.cli.number_checks import finite
from hanglab.harness.cli.run import RUNS, stopping
from hanglab.harness.scenarios.number_bounds import MOST_RANKS
from hanglab.recorder.case.backends import DEFAULT_BACKEND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from hanglab.harness.mutation.judgement import MutantJudgement
    from hanglab.harness.mutation.mutant import Mutant
    from hanglab.harness.mutation.operator import Mutation, Operator
    from hanglab.harness.mutation.running import MutationFolder, MutationRun
    from hanglab.harness.mutation.source import Script
    from hanglab.harness.mutation.table import MutationReport


def mutate(
    context: typer.Context,
    script: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCRIPT",
            help="A training script that runs; the words after -- are its arguments.",
            show_default=False,
        ),
    ] = None,
    world_size: Annotated[int, typer.Option(min=2, max=MOST_RANKS, help="Ranks of the job.")] = 4,
    backend: BackendName = DEFAULT_BACKEND,
    operators: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE,...",
            help="Operators by name or by a file's path; all without it.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Mutants at most: in turns one of each operator.")
    ] = 100,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 2,
    hang_after: Annotated[
        float,
        typer.Option(
            min=0.5, callback=finite, help="Seconds without movement that count as stuck."
        ),
    ] = 3.0,
    deadline: Annotated[
        float,
        typer.Option(min=1, callback=finite, help="Seconds that the original may take."),
    ] = 120.0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help=f"A new or empty folder for all of it; one below {RUNS} without it.",
        ),
    ] = None,
    as_suite: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A new or empty folder that gets the mutants as plain scripts, with suite.json.",
        ),
    ] = None,
    list_operators: Annotated[
        bool, typer.Option("--list-operators", help="Print the operators, and do nothing else.")
    ] = False,
) -> int:
    """Break a training script on purpose, one mutant at a time, and judge the verdicts.

    The script runs as it is first: it must end well and be healthy. Then each mutant runs under
    the recorder, and its verdict is compared with what was done to it. The lines of a mutant are
    those of the script. What is missed is left as a scenario that `hanglab run` runs.

    Exits with 0 if all that struck was found, by cause, ranks and line; 1 if some was missed or
    an innocent rank was accused; 2 if there was nothing to judge; 3 if the script does not run
    or is not healthy as it is; 4 if hanglab could not run some job.
    """
    from hanglab.harness.errors import MissingExtra, UsageError

    require_backend("hanglab mutate", backend)
    try:
        from hanglab.harness.mutation.communication import trainers_of
        from hanglab.harness.mutation.operator import all_operators, choose_operators
        from hanglab.harness.mutation.source import Script
    except ModuleNotFoundError as failure:
        if failure.name != "libcst":
            raise
        raise MissingExtra(
            "`hanglab mutate` needs libcst, which is not installed.",
            "pip install 'hanglab[mutate]'",
        ) from failure
    from hanglab.harness.jobs.plan import Options
    from hanglab.harness.jobs.run_folder import RunFolder
    from hanglab.harness.launchers.selection import Launchers
    from hanglab.harness.mutation.results import make_report, write_results
    from hanglab.harness.mutation.running import MutationFolder, MutationRun
    from hanglab.harness.mutation.suite_export import write_suite
    from hanglab.harness.mutation.table import exit_code
    from hanglab.harness.report.panel import make_console

    if list_operators:
        _print_operators(all_operators().values())
        return 0
    if script is None:
        raise UsageError("Which script?", "`hanglab mutate train.py --world-size 4`.")
    chosen = choose_operators(operators)
    source = Script(script.absolute())
    for folder in (out, as_suite):
        if folder is not None:
            check_unused(folder)
    if out is not None and as_suite is not None and out.resolve() == as_suite.resolve():
        raise UsageError("--out and --as-suite are one folder.", "Give each a folder of its own.")
    path = out.absolute() if out is not None else RunFolder.create(RUNS.absolute()).path
    options = Options(
        backend=backend,
        world_size=world_size,
        jobs=jobs,
        control=False,
        hang_after_s=hang_after,
        deadline_s=deadline,
    )
    console = make_console(errors=True)
    begun = time.monotonic()
    with stopping() as stopped:
        launchers = Launchers()
        run = MutationRun(
            MutationFolder.create(path),
            options,
            launchers,
            stopped.event,
            tuple(context.obj or ()),
            tuple(trainers_of(source)),
        )
        try:
            mutants, judgements = _run(run, source, chosen, limit, console)
        finally:
            launchers.close()
    report = make_report(
        source.path.name,
        world_size,
        backend,
        judgements,
        seconds=time.monotonic() - begun,
        interrupted=stopped.signal is not None,
    )
    _print_table(report)
    misses = write_results(run, report, mutants)
    if as_suite is not None:
        number = write_suite(as_suite, source, report, mutants)
        print(f"{as_suite}: {number} scripts and suite.json")
    _print_results(report, run.folder, misses)
    if stopped.signal is not None:
        typer.echo(f"hanglab: interrupted; {path} holds what had been found", err=True)
        return 128 + stopped.signal
    return exit_code(judgements)


def _run(
    run: MutationRun,
    source: Script,
    operators: Sequence[Operator],
    limit: int,
    console: Console,
) -> tuple[list[Mutant], list[MutantJudgement]]:
    import msgspec

    from hanglab.harness.errors import UsageError
    from hanglab.harness.jobs.run import RunRequest
    from hanglab.harness.mutation.mutant import choose_mutations, write_mutants
    from hanglab.harness.mutation.operator import MutationTarget
    from hanglab.harness.mutation.progress import MutationProgress

    def shown(requests: Sequence[RunRequest]) -> MutationProgress:
        progress = MutationProgress(console, requests)
        shows.enter_context(progress.shown())
        return progress

    import contextlib

    with contextlib.ExitStack() as shows:
        console.print(f"{source.path.name} as it is, and once more to count its statements")
        profile = run.run_original(source.path, shown)
    target = MutationTarget(source, profile)
    mutations: list[tuple[Operator, Mutation]] = choose_mutations(target, operators, limit)
    if not mutations:
        raise UsageError(
            f"No operator finds a place in {source.path.name}.",
            "Use more operators, or a script whose own functions run or call torch.distributed.",
        )
    mutants = write_mutants(source, mutations, run.folder.mutants)
    kinds = {mutant.operator.name for mutant in mutants}
    console.print(f"{len(mutants)} mutants by {len(kinds)} of the operators")
    kept = run.folder.path / "judgements.jsonl"

    def keep(judgement: MutantJudgement) -> None:
        # As they come: whatever ends hanglab, what was found so far is there.
        with kept.open("ab") as lines:
            lines.write(msgspec.json.encode(judgement) + b"\n")

    with contextlib.ExitStack() as shows:
        return mutants, run.run_mutants(mutants, shown, keep)


def _print_table(report: MutationReport) -> None:
    from hanglab.harness.mutation.table import terminal_table
    from hanglab.harness.report.panel import make_console

    make_console().print(terminal_table(report))


def _print_results(report: MutationReport, folder: MutationFolder, misses: Sequence[Path]) -> None:
    from hanglab.harness.report.panel import make_console

    console = make_console()
    for path in misses:
        console.print(f"missed: hanglab run {path}", markup=False, soft_wrap=True)
    console.print(
        f"{report.total.mutants} mutants in {report.seconds:.0f} s; {folder.path} has report.json, "
        "report.md and each job's Case",
        markup=False,
        soft_wrap=True,
    )


def _print_operators(operators: Iterable[Operator]) -> None:
    from rich.table import Table

    from hanglab.harness.report.panel import make_console

    table = Table.grid(padding=(0, 2))
    for operator in operators:
        table.add_row(operator.name, operator.description)
    make_console().print(table)
