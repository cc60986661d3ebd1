"""``hanglab minimise``: the smallest script that hangs as a recorded job did."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.backend_option import BackendName, require_backend
from hanglab.harness.cli.number_checks import finite
from hanglab.harness.cli.run import RUNS, stopping
from hanglab.harness.cli.sources import source_path
from hanglab.recorder.case.backends import DEFAULT_BACKEND

if TYPE_CHECKING:
    from hanglab.harness.minimisation.minimiser import Minimiser


def minimise(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="CASE|DUMPS",
            help="A Case, or a folder of Flight Recorder dumps; a path or a URL.",
            parser=source_path,
        ),
    ],
    script: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The script; the scenario is FILE_scenario.py."
        ),
    ] = Path("repro.py"),
    backend: BackendName = DEFAULT_BACKEND,
    deadline: Annotated[
        float, typer.Option(min=1, callback=finite, help="Seconds that each run may take.")
    ] = 120.0,
) -> int:
    """Cut a recorded hang down to the few ranks and calls that it takes.

    Ranks, groups, operations and arguments are left out while cause and culprits stay: simulated
    first, then confirmed by real runs on the backend. Writes a script for torchrun, and a scenario
    with its expectation and control beside it.

    Exits with 0 if both hang for the job's reason; 1 if the same ranks are to blame for another
    cause, or the scenario could not be confirmed; 2 if the job is healthy or inconclusive or no
    Program follows from it; 3 if its calls do not hang for the same reason.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hanglab.analyzer.replayable import read_replayable
    from hanglab.harness.errors import HanglabError
    from hanglab.harness.jobs.run_folder import RunFolder
    from hanglab.harness.minimisation.minimiser import Minimiser
    from hanglab.harness.minimisation.output_files import OutputFiles

    require_backend("hanglab minimise", backend)
    files = OutputFiles(script)
    job = read_replayable(source)
    with stopping() as stopped:
        minimiser = Minimiser(
            job, files, lambda: RunFolder.create(RUNS.absolute()), stopped.event, deadline, backend
        )
        try:
            code = minimiser.run()
        except HanglabError:
            if minimiser.found is not None:
                _tell(minimiser)
            raise
    _tell(minimiser)
    if stopped.signal is not None:
        kept = f"{files.script} is the smallest that was confirmed" if minimiser.found else ""
        typer.echo(f"hanglab: interrupted; {kept or 'nothing had been confirmed yet'}", err=True)
        return 128 + stopped.signal
    return code


def _tell(minimiser: Minimiser) -> None:
    from hanglab.harness.report.panel import make_console

    console = make_console()
    for sentence in minimiser.sentences():
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
