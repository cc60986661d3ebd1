"""``hanglab analyze``: the verdict on a Case or on a bare folder of dumps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def analyze(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A Case, or a folder of Flight Recorder dumps.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print hanglab.verdict/1.")] = False,
) -> int:
    """Name the cause of a hang from what its job left behind."""
    # numpy would start a thread per core for algebra that nobody asks for: a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hanglab.analyzer.engine import analyze as conclude

    return show(conclude(folder), as_json)


def show(verdict: object, as_json: bool) -> int:
    """Prints a verdict and gives the exit code that belongs to it."""
    from hanglab.analyzer.verdict import Status, Verdict

    assert isinstance(verdict, Verdict)
    if as_json:
        print(verdict.to_json().decode())
    else:
        from hanglab.harness.report.panel import make_console, verdict_panel

        make_console().print(verdict_panel(verdict))
    return 2 if verdict.status is Status.INCONCLUSIVE else 0
