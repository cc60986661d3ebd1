"""``hanglab new``: files to begin with, which run as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

new = typer.Typer(help="Write a file to begin with, which runs as it is.", no_args_is_help=True)
_Name = Annotated[str, typer.Argument(help="In lower case, as Python names are.")]
_Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write NAME.py into.")
]


@new.command()
def heuristic(name: _Name, out: _Out = Path()) -> int:
    """A heuristic for a cause of your own, with the cause's row; see docs/heuristics.md."""
    from hanglab.analyzer.verdict import Category, Cause, Status
    from hanglab.harness.errors import UsageError
    from hanglab.harness.templates import HEURISTIC

    taken = {one.value for kind in (Cause, Category, Status) for one in kind}
    if name in taken:
        raise UsageError(f"The catalogue has {name!r} already.", "Choose another name.")
    path = _write(name, out, HEURISTIC.format(name=name, constant=name.upper()))
    print(f"{path}: `hanglab eval --heuristic {path}` says what it changes")
    return 0


@new.command()
def scenario(name: _Name, out: _Out = Path()) -> int:
    """A scenario with its fault, its control, and the verdict that it must get."""
    from hanglab.harness.templates import SCENARIO

    path = _write(name, out, SCENARIO.format(name=name))
    print(f"{path}: `hanglab run {path}` runs it with its control")
    return 0


def _write(name: str, folder: Path, text: str) -> Path:
    """Write ``NAME.py``.  Raises UsageError where the name is none or the file is there."""
    import keyword

    from hanglab.harness.errors import UsageError
    from hanglab.harness.jobs.run_folder import ArtifactsError

    if not name.isidentifier() or name != name.lower() or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} is no name.", "Use letters in lower case, digits and _, such as slow_disk."
        )
    path = folder / f"{name}.py"
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{path} is there already, and nothing is overwritten.", "Choose another name."
        ) from None
    except OSError as error:
        raise ArtifactsError(f"{path} cannot be written: {error.strerror or error}") from error
    return path
