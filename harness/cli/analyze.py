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
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the whole chain of evidence.")
    ] = False,
) -> int:
    """Name the cause of a hang from what its job left behind."""
    # numpy would start a thread per core for algebra that nobody asks for: a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return analyze_and_show(folder, as_json, verbose)


def analyze_and_show(folder: Path, as_json: bool, verbose: bool = False) -> int:
    """Prints the verdict on a folder and gives the exit code that belongs to it."""
    from hanglab.analyzer.engine import examine
    from hanglab.analyzer.verdict import Status

    examined = examine(folder)
    if as_json:
        print(examined.verdict.to_json().decode())
    else:
        from hanglab.harness.report.explanation.explaining import explain_examined
        from hanglab.harness.report.panel import make_console
        from hanglab.harness.report.verdict_text import print_explanation

        print_explanation(make_console(), explain_examined(examined, folder), verbose)
    return 2 if examined.verdict.status is Status.INCONCLUSIVE else 0
