"""``hanglab mcp``: Cases for assistants, by the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def mcp(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Cases below it can be read, nothing else.")
    ] = Path(),
) -> int:
    """Let an assistant list Cases, have them analysed and read their evidence: read-only.

    It speaks on standard input and output, as assistants start it.
    """
    from hanglab.harness.errors import UsageError
    from hanglab.harness.report.machines.mcp_server import make_server

    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder.", "Give the one that holds the Cases.")
    make_server(folder).run()
    return 0
