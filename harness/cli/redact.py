"""``hanglab redact``: a copy of a Case that may be shown to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.sources import source_path


def redact(
    case: Annotated[
        Path, typer.Argument(metavar="CASE", help="Folder or URL of a Case.", parser=source_path)
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the copy.")
    ],
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Take it even if files are missing or altered.")
    ] = False,
) -> int:
    """Copy a Case without what is nobody else's business.

    Paths, names of hosts, users, functions, sections and groups, addresses,
    arguments and settings become words like file1 and host1; source lines and
    free text go. Line numbers, operations, shapes, times and the code of torch
    and of the standard library stay. The verdict is compared: exits with 1,
    and says in what it differs, if the copy does not lead to the same one.
    """
    from hanglab.harness.recording import archives

    left_out, differences = archives.redact(case, out, damaged)
    for line in left_out:
        print(f"left out: {line}")
    print(f"{out}: the copy")
    for line in differences:
        typer.echo(f"hanglab: the verdict is not quite the same; {line}", err=True)
    return 1 if differences else 0
