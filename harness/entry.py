"""Runs one scenario's function inside a rank.

``python -m hanglab.harness.entry FILE FUNCTION [ARGUMENT...]`` is what torchrun
starts; ranks that were forked call :func:`call`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path

from hanglab.harness.errors import HanglabError


class EntryError(HanglabError):
    """A scenario's function cannot be had from its file."""

    advice = "The function has to stand at the top level of the file, under its own name."


def call(file: Path, function: str) -> None:
    """Calls the scenario's function; the environment says which rank this is.

    Raises :class:`EntryError`, and whatever the file or the function raises.
    """
    body = getattr(load(file), function, None)
    if not isinstance(body, types.FunctionType):
        raise EntryError(f"{file} has no function {function!r}")
    _runner()(body)


def load(file: Path) -> types.ModuleType:
    """Imports a file by its path, under its own name where that is free.

    Worker processes started with ``spawn`` import the file by that name: its
    folder stands first on their ``sys.path``, as it does here.
    """
    name = file.stem if file.stem not in sys.modules else f"_hanglab_scenario_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise EntryError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _runner() -> Callable[[types.FunctionType], None]:
    from hanglab.harness.job import run_body

    return run_body


def main() -> None:
    file, function = Path(sys.argv[1]).absolute(), sys.argv[2]
    sys.argv = [str(file), *sys.argv[3:]]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(file)
    call(file, function)


if __name__ == "__main__":
    main()
