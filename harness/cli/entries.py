"""``hanglab entries``: the calls of all ranks side by side, or as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.sources import source_path


def entries(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A Case, or a folder of Flight Recorder dumps; a path or a URL.",
            parser=source_path,
        ),
    ],
    ranks: Annotated[
        str | None, typer.Option(metavar="0,3-5", help="Only the columns of these ranks.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Only groups of this name or description; may be given again."),
    ] = None,
    seq: Annotated[
        str | None, typer.Option(metavar="10-20", help="Only these sequence numbers.")
    ] = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="Show where calls were made.")] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Only rows in which a call is unfinished.")
    ] = False,
    mismatch_cap: Annotated[
        int, typer.Option(min=0, help="Rows with a mismatch to show; 0 for all.")
    ] = 10,
    parquet: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write everything as Parquet files instead."),
    ] = None,
) -> int:
    """Show the recorded calls of all ranks side by side."""
    from hanglab.analyzer import tables
    from hanglab.analyzer.errors import InputError
    from hanglab.analyzer.facts.calls_for_tables import load_calls
    from hanglab.harness.jobs.run_folder import ArtifactsError

    try:
        chosen = tables.parse_numbers(ranks) if ranks is not None else None
        span = tables.parse_range(seq) if seq is not None else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    try:
        # The database holds what torch wrote, and nothing else.
        loaded = tables.load_dumps(folder) if parquet is not None else load_calls(folder)
    except NotADirectoryError as error:
        raise InputError(
            f"{folder} is no folder.", "Give a Case, or a folder of Flight Recorder dumps."
        ) from error
    if not loaded.dumps:
        raise InputError(
            f"{folder} holds no dump that can be read.",
            "; ".join(f"{item.file}: {item.reason}" for item in loaded.unusable[:3])
            or "Give a Case, or a folder of Flight Recorder dumps.",
        )
    if parquet is not None:
        try:
            written = tables.write_database(loaded, parquet)
        except OSError as failure:
            raise ArtifactsError(
                f"{parquet} cannot be written: {failure.strerror or failure}"
            ) from failure
        print(*written, sep="\n")
        return 0
    from hanglab.analyzer.tables.render import render_entries
    from hanglab.harness.report.panel import make_console

    table = tables.entries_table(
        loaded,
        ranks=chosen,
        groups=group,
        seqs=span,
        stacks=stacks,
        only_unfinished=unfinished,
        mismatch_cap=mismatch_cap or None,
    )
    make_console().print(render_entries(table))
    return 0
