"""Operators of mutation, and where they come from: this project, other distributions, a file."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Final

from hanglab.harness.errors import UsageError
from hanglab.harness.mutation.communication import Communication, communications
from hanglab.harness.mutation.source import Changes, Script, Statement
from hanglab.harness.mutation.statement_counts import Profile
from hanglab.harness.mutation.truth import ExpectedVerdict

#: Entry points by which other distributions bring operators: ``name = "package.module:OPERATOR"``.
ENTRY_POINTS: Final = "hanglab.mutation_operators"


class OperatorError(UsageError):
    """An operator of a user cannot be loaded."""

    advice = "docs/mutation.md says what an operator has to look like."


@dataclass(frozen=True)
class Mutation:
    """One fault for one place of a script."""

    #: The statement whose first line is the fault's.
    statement: Statement
    changes: Changes
    #: The rank that it strikes on, for a person to read; ``truth`` says who is to blame.
    rank: int
    truth: ExpectedVerdict
    #: What is done, as a sentence without its full stop.
    summary: str


@dataclass(frozen=True)
class MutationTarget:
    """A script, and what it does when it runs."""

    script: Script
    profile: Profile

    @cached_property
    def communications(self) -> list[Communication]:
        """Calls of torch.distributed that some rank has run."""
        found = communications(self.script)
        return [one for one in found if self.profile.ranks_at(one.statement.line)]

    @cached_property
    def statements(self) -> list[Statement]:
        """Simple statements in functions, or in blocks, that some rank has run."""
        return [
            one
            for one in self.script.statements
            if one.simple is not None
            and self.script.can_change(one)
            and (one.function is not None or one.depth)
            and self.profile.ranks_at(one.line)
        ]

    @cached_property
    def busiest(self) -> list[Statement]:
        """The statements that run in the steps of the training, three times at least.

        Those in a function that communicates, or calls what does, come first.
        """
        often = [one for one in self.statements if self.profile.ranks_at(one.line, least=3)]
        return sorted(often, key=lambda one: not self._beside_communication(one))

    def _beside_communication(self, statement: Statement) -> bool:
        beside = [self.script.by_node[node] for node in statement.block]
        return any(self.profile.leads_to_communication(one.line) for one in beside)


@dataclass(frozen=True)
class Operator:
    """A kind of fault."""

    #: In lower case, with underscores; names files of mutants.
    name: str
    #: What is wrong in its mutants, as people read it.
    description: str
    mutate: Callable[[MutationTarget], Iterable[Mutation]]
    #: Its mutants send ranks two ways at a statement: one of those that it changes.
    is_branch: bool = False


def own_operators() -> list[Operator]:
    """Operators that come with hanglab, by the names of their files."""
    package = importlib.import_module("hanglab.harness.mutation.operators")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return [operator for module in modules for operator in _of_module(module)]


def all_operators() -> dict[str, Operator]:
    """All operators by name: this project's, then other distributions'.  Raises OperatorError."""
    operators = {operator.name: operator for operator in own_operators()}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            loaded = point.load()
        except Exception as failure:
            raise OperatorError(
                f"The operator {point.name!r} of {point.value} cannot be imported: {failure}"
            ) from failure
        for operator in _as_operators(loaded, point.value):
            operators.setdefault(operator.name, operator)
    return operators


def choose_operators(wanted: str | None) -> list[Operator]:
    """Operators that are named, by commas: names, or paths of files; all without any.

    Raises UsageError for a name that there is not, OperatorError for a file without operators.
    """
    known = all_operators()
    if wanted is None:
        return list(known.values())
    chosen: list[Operator] = []
    for word in filter(None, (part.strip() for part in wanted.split(","))):
        if word in known:
            chosen.append(known[word])
        elif word.endswith(".py"):
            chosen += _of_file(Path(word))
        else:
            raise UsageError(
                f"There is no operator {word!r}.",
                f"There are {', '.join(sorted(known))}; or give the path of a file.",
            )
    if not chosen:
        raise UsageError("--operators names none.", "Leave it out to use all.")
    return list(dict.fromkeys(chosen))


def _of_file(path: Path) -> list[Operator]:
    spec = importlib.util.spec_from_file_location(f"hanglab_operators_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OperatorError(f"There is no file {path}.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as failure:
        raise OperatorError(f"{path} cannot be imported: {failure}") from failure
    found = list(_of_module(module))
    if not found:
        raise OperatorError(f"{path} has neither OPERATOR nor OPERATORS.")
    return found


def _of_module(module: ModuleType) -> Iterator[Operator]:
    for name in ("OPERATOR", "OPERATORS"):
        yield from _as_operators(getattr(module, name, ()), str(module.__file__))


def _as_operators(value: object, where: str) -> Sequence[Operator]:
    operators = [value] if isinstance(value, Operator) else value
    if not isinstance(operators, list | tuple) or not all(
        isinstance(one, Operator) for one in operators
    ):
        raise OperatorError(f"{where} is no Operator, and no list of them.")
    return operators
