"""Runs one scenario's function inside a rank.

``python -m hanglab.harness.rank.entry FILE FUNCTION [ARGUMENT...]`` is what torchrun
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

_OWN_FOLDER = str(Path(__file__).absolute().parents[1])


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
    from hanglab.recorder.rank.branches.recording import RECORDING

    loader = RECORDING.loader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is None or spec.loader is None:
        raise EntryError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _runner() -> Callable[[types.FunctionType], None]:
    from hanglab.harness.rank.job import run_body

    return run_body


def report(error: BaseException) -> None:
    """Shows an uncaught exception as the interpreter does, without hanglab's own frames."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    kind, value = type(error), error.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = kind, value, trace
    sys.excepthook(kind, value, trace)


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OWN_FOLDER + os.sep)


def main() -> None:
    from hanglab.harness.rank.shared_gpu import share

    share()
    file, function = Path(sys.argv[1]).absolute(), sys.argv[2]
    sys.argv = [str(file), *sys.argv[3:]]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(file)
    try:
        call(file, function)
    except Exception as error:
        report(error)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
