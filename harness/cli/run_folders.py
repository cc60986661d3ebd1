"""The argument that names folders of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunFolders = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Folders that `hanglab run`, `pytest --hanglab` or `hanglab merge` has left.",
    ),
]
