"""``hanglab stragglers``: which rank is slow in which section."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.sources import source_path


def stragglers(
    case: Annotated[
        Path, typer.Argument(metavar="CASE", help="Folder or URL of a Case.", parser=source_path)
    ],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Draw scores over time and arrival lag too."),
    ] = None,
) -> int:
    """Compare the ranks' own work, section by section, and say the verdict on the whole job."""
    from hanglab.analyzer.plain_text import shown
    from hanglab.harness.report.panel import make_console
    from hanglab.harness.report.stragglers.heat import heat_table
    from hanglab.harness.report.stragglers.history import NothingToCompare, load_history
    from hanglab.harness.report.stragglers.whole_job import slow_findings, verdict_on_speed

    history = None
    try:
        history = load_history(case)
    except NothingToCompare:
        told = slow_findings(case)
        # Neither these nor arrival lag need a section.
        if plot is None and not told:
            raise
    else:
        make_console().print(heat_table(history))
        told = verdict_on_speed(case)
    for line in told:
        print(shown(line))
    if plot is not None:
        from hanglab.harness.report.stragglers.plot import plot_stragglers

        plot_stragglers(case, history, plot)
        print(plot)
    return 0
