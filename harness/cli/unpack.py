"""``hanglab unpack``: a Case out of one file, which may come from a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.sources import source_path


def unpack(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="What `hanglab pack` wrote, or its URL.", parser=source_path
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="A new folder; without it, by the name."),
    ] = None,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Unpack it even if files are missing or altered.")
    ] = False,
) -> int:
    """Unpack a Case. Whatever the file holds, nothing is written outside the new folder."""
    from hanglab.harness.recording import archives

    path, count = archives.unpack(file, out, damaged)
    print(f"{path}: {count} files; `hanglab analyze {path}` reads them")
    return 0
