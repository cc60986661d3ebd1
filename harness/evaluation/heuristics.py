"""Heuristics chosen for an evaluation: those installed, with a user's files, without some."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.proposal import Heuristic, Proposal, is_detector
from hanglab.analyzer.registry import heuristics
from hanglab.harness.errors import HanglabError, UsageError
from hanglab.harness.evaluation.time_limit import time_limit

#: Time that a heuristic of a file may take for one Case, in seconds.
LIMIT_S = 30.0


class HeuristicError(HanglabError, ImportError):
    """A file of heuristics cannot be loaded."""

    advice = "Mend the file; `hanglab new heuristic NAME` writes one that works."


@dataclass(frozen=True)
class HeuristicChoice:
    """Heuristics to run.  ``files`` are ``FILE.py``, or ``FILE.py::NAME`` for one of them."""

    files: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def resolve(self) -> tuple[tuple[str, Heuristic], ...]:
        """Heuristics by name.  Raises HeuristicError, and UsageError for a name that none has."""
        return _resolve(self)

    @property
    def changes(self) -> bool:
        """True where it differs from what is installed."""
        return bool(self.files or self.without)

    def describe(self) -> str:
        words = [f"with {Path(file).name}" for file in self.files]
        return ", ".join(words + [f"without {name}" for name in self.without]) or "as installed"


@cache
def _resolve(choice: HeuristicChoice) -> tuple[tuple[str, Heuristic], ...]:
    chosen = dict(heuristics())
    for name in choice.without:
        if name not in chosen:
            near = difflib.get_close_matches(name, chosen, n=3, cutoff=0.5)
            advice = f"Did you mean {' or '.join(near)}?" if near else f"There are {_list(chosen)}."
            raise UsageError(f"There is no heuristic {name!r} to leave out.", advice)
        del chosen[name]
    for file in choice.files:
        for name, heuristic in _read(file):
            own = name if name not in chosen else f"{Path(file).stem}:{name}"
            chosen[own] = _within_limit(heuristic)
    return tuple(sorted(chosen.items()))


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _read(file: str) -> list[tuple[str, Heuristic]]:
    path, _, wanted = file.partition("::")
    module = _import(Path(path))
    found = dict(_heuristics_of(module))
    if wanted:
        function = vars(module).get(wanted)
        if not isinstance(function, FunctionType):
            raise HeuristicError(f"{path} has no function {wanted!r}.")
        return [(wanted, function)]
    if not found:
        raise HeuristicError(
            f"{path} has no heuristic.",
            "One is a function of the job's facts: def mine(facts: CaseFacts) -> "
            "Iterator[Proposal].",
        )
    return list(found.items())


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", "--heuristic takes a Python file.")
    name = f"hanglab_heuristic_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file.", "--heuristic takes a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise HeuristicError(
            f"{path} cannot be imported: {type(error).__name__}: {error}."
        ) from error
    return module


def _heuristics_of(module: ModuleType) -> Iterator[tuple[str, Heuristic]]:
    """Functions of the file that are marked as detectors, else those that take facts alone."""
    own = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    }
    marked = {name: value for name, value in own.items() if is_detector(value)}
    for name, value in (marked or own).items():
        if marked or (not name.startswith("_") and _takes_facts(value)):
            yield name, value


def _takes_facts(function: FunctionType) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    needed = [one for one in parameters if one.default is one.empty]
    if len(needed) != 1:
        return False
    annotation = needed[0].annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2] == "CaseFacts" or needed[0].name == "facts"


def _within_limit(heuristic: Heuristic) -> Heuristic:
    """The heuristic, which raises TimeoutError where it does not come to an end."""

    def limited(facts: CaseFacts) -> Sequence[Proposal]:
        with time_limit(LIMIT_S):
            return list(heuristic(facts))

    return limited
