"""``hanglab eval --suite``: a folder of plain scripts that somebody else has labelled."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hanglab.harness.cli.backend_option import require_backend
from hanglab.harness.cli.run import RUNS, stopping

if TYPE_CHECKING:
    from hanglab.harness.evaluation.bounds import Bounds
    from hanglab.harness.evaluation.outputs import Outputs
    from hanglab.harness.evaluation.suite.running import RunOptions


def evaluate_scripts(
    folder: Path, backend: str | None, options: RunOptions, outputs: Outputs, bounds: Bounds
) -> int:
    """Run and judge a suite; its exit code is that of ``hanglab eval``.

    Without ``backend`` it is that which the suite's labels are for.
    """
    from hanglab.harness.evaluation.showing import print_tables
    from hanglab.harness.evaluation.suite.declaration import read_suite
    from hanglab.harness.evaluation.suite.measures import score_suite
    from hanglab.harness.evaluation.suite.running import run_suite
    from hanglab.harness.evaluation.suite.tables import evaluate_suite, tables_of_suite
    from hanglab.harness.report.panel import make_console

    suite = read_suite(folder)
    options = replace(options, backend=suite.runs_on(backend))
    require_backend("hanglab eval --suite", options.backend)
    begun = time.monotonic()
    with stopping() as stopped:
        runs = run_suite(suite, folder, options, RUNS, make_console(errors=True), stopped.event)
    classes = {script.kind for script in suite.scripts if script.kind is not None}
    found = evaluate_suite(
        score_suite(suite, runs),
        folder=str(folder),
        backend=options.backend,
        repeat=options.repeat,
        interrupted=stopped.signal is not None,
        unknown_classes=sorted(kind for kind in classes if not suite.causes(kind)),
        seconds=time.monotonic() - begun,
    )
    tables = tables_of_suite(found)
    print_tables(make_console(), tables)
    outputs.write_all(found, tables, tables)
    if stopped.signal is not None:
        typer.echo("hanglab: interrupted; what had been run is shown", err=True)
        return 128 + stopped.signal
    crossed = bounds.crossed(found.measures)
    for sentence in crossed:
        typer.echo(f"hanglab: {sentence}", err=True)
    if found.measures.unanswered:
        typer.echo(f"hanglab: {found.measures.unanswered} scripts have no answer", err=True)
        return 4
    return 1 if crossed else 0
