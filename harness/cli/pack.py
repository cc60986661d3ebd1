"""``hanglab pack``: a Case as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.sources import source_path


def pack(
    case: Annotated[
        Path, typer.Argument(metavar="CASE", help="Folder or URL of a Case.", parser=source_path)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Without it NAME.case.tar.gz, here."),
    ] = None,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Pack it even if files are missing or altered.")
    ] = False,
) -> int:
    """Pack a Case into a single file, to be sent to somebody; see also `hanglab redact`."""
    from rich.filesize import decimal

    from hanglab.harness.recording import archives

    path, size = archives.pack(case, out, damaged)
    print(f"{path}: {decimal(size)}")
    return 0
