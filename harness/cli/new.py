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


@new.command()
def pack(
    name: _Name,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to make the pack's in.")
    ] = Path(),
) -> int:
    """A pack of scenarios that others can install, with one scenario in it."""
    import shutil

    from hanglab.harness.cli.new_folders import check_unused
    from hanglab.harness.errors import UsageError
    from hanglab.harness.jobs.run_folder import ArtifactsError
    from hanglab.harness.scenarios.packs import BUILT_IN
    from hanglab.harness.templates import PACK, SCENARIO

    _check_name(name)
    if name in BUILT_IN:
        raise UsageError(f"hanglab has a pack {name!r} of its own.", "Choose another name.")
    folder, package = out / f"hanglab-pack-{name}", f"hanglab_pack_{name}"
    check_unused(folder)
    first = f"{name}_skipped"
    files = {
        path.format(package=package): text.format(name=name, package=package)
        for path, text in PACK.items()
    }
    files[f"{package}/{first}.py"] = SCENARIO.format(name=first)
    try:
        (folder / package).mkdir(parents=True)
        for path, text in files.items():
            (folder / path).write_text(text)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ArtifactsError(f"{folder} cannot be written: {error.strerror or error}") from error
    print(f"{folder}: `pip install --editable {folder}`, then `hanglab run --pack {name}`")
    return 0


def _write(name: str, folder: Path, text: str) -> Path:
    """Write ``NAME.py``.  Raises UsageError where the name is none or the file is there."""
    from hanglab.harness.jobs.run_folder import write_new

    _check_name(name)
    path = folder / f"{name}.py"
    write_new(path, text)
    return path


def _check_name(name: str) -> None:
    """Raises UsageError for what cannot name a module."""
    import keyword

    from hanglab.harness.errors import UsageError

    if not name.isidentifier() or name != name.lower() or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} is no name.", "Use letters in lower case, digits and _, such as slow_disk."
        )
