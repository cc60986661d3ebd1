"""``hanglab eval --suite``: a folder of plain scripts that somebody else has labelled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hanglab.harness.cli.run import RUNS, stopping

if TYPE_CHECKING:
    from hanglab.harness.evaluation.bounds import Bounds
    from hanglab.harness.evaluation.outputs import Outputs
    from hanglab.harness.evaluation.suite.running import RunOptions


def evaluate_scripts(folder: Path, options: RunOptions, outputs: Outputs, bounds: Bounds) -> int:
    """Run and judge a suite; its exit code is that of ``hanglab eval``."""
    from hanglab.harness import capabilities
    from hanglab.harness.errors import MissingExtra
    from hanglab.harness.evaluation.showing import print_tables
    from hanglab.harness.evaluation.suite.declaration import read_suite
    from hanglab.harness.evaluation.suite.measures import score_suite
    from hanglab.harness.evaluation.suite.running import run_suite
    from hanglab.harness.evaluation.suite.tables import evaluate_suite, tables_of_suite
    from hanglab.harness.report.panel import make_console

    torch = capabilities.capability("torch")
    if not torch.available:
        raise MissingExtra("`hanglab eval --suite` needs torch.", torch.remedy)
    suite = read_suite(folder)
    begun = time.monotonic()
    with stopping() as stopped:
        runs = run_suite(suite, folder, options, RUNS, make_console(errors=True), stopped.event)
    classes = {script.kind for script in suite.scripts if script.kind is not None}
    found = evaluate_suite(
        score_suite(suite, runs),
        folder=str(folder),
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
