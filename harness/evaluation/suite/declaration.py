"""The declaration of a suite: ``suite.json`` beside its scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from hanglab.analyzer.verdict import Category, Cause
from hanglab.harness.errors import HanglabError, UsageError
from hanglab.harness.scenarios.number_bounds import MOST_RANKS
from hanglab.recorder.case.backends import DEFAULT_BACKEND, RUNNABLE, backend_of

FILE = "suite.json"
Observable = Literal["hangs", "fails", "silently_wrong", "fine"]
SuiteBackend = Literal["gloo", "nccl", "nccl-emulated"]
#: As people write it.
_SPELLED: dict[str, Observable] = {"silently wrong": "silently_wrong"}


class SuiteError(HanglabError):
    """A suite cannot be read."""

    advice = "docs/evaluation.md says what a suite.json holds."


class LabelledScript(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A script with what its author says of it."""

    #: Path below the suite's folder.
    file: str
    ranks: int
    label: Literal["ok", "error"]
    observable: Observable | Literal["silently wrong"]
    #: A cause or a category of the catalogue, or a class of the suite's own.
    kind: str | None = msgspec.field(default=None, name="class")
    culprits: list[int] | None = None
    lines: list[int] | None = None
    arguments: list[str] = []
    #: Seconds without movement that count as stuck, where the script rests for longer.
    hang_after: float | None = None
    reference: str = ""

    def __post_init__(self) -> None:
        self.observable = _SPELLED.get(self.observable, self.observable)

    @property
    def name(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")


class LabelledSuite(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Scripts, and causes by the suite's own classes."""

    scripts: list[LabelledScript]
    classes: dict[str, list[str]] = {}
    #: Where it comes from and under which licence, in words.
    origin: str = ""
    #: Backend that its scripts and labels are for, where they are for one alone.
    backend: SuiteBackend | None = None

    def runs_on(self, asked: str | None) -> str:
        """The backend to run it on.  Raises UsageError for one that its labels are not for."""
        backend = asked or self.backend or DEFAULT_BACKEND
        if self.backend is not None and _behaviour(backend) != _behaviour(self.backend):
            fitting = [name for name in RUNNABLE if _behaviour(name) == _behaviour(self.backend)]
            raise UsageError(
                f"The suite's labels are for {self.backend}, and not for {backend}.",
                f"Give --backend {' or '.join(fitting)}.",
            )
        return backend

    def causes(self, kind: str) -> frozenset[str]:
        """Causes that agree with a class; none where nothing says which do."""
        if kind in self.classes:
            return frozenset(self.classes[kind])
        if kind in {category.value for category in Category}:
            return frozenset(cause.value for cause in Cause if cause.category.value == kind)
        return frozenset({kind} & {cause.value for cause in Cause})


def _behaviour(backend: str) -> str:
    return backend_of(backend).behaves_as or backend


def read_suite(folder: Path) -> LabelledSuite:
    """The suite in a folder.  Raises SuiteError, which names the script that is wrong."""
    path = folder / FILE
    try:
        suite = msgspec.json.decode(path.read_bytes(), type=LabelledSuite)
    except OSError as error:
        raise SuiteError(f"{path} cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path} is no suite: {error}.") from error
    if not suite.scripts:
        raise SuiteError(f"{path} names no script.")
    seen: set[str] = set()
    for number, script in enumerate(suite.scripts):
        problem = _problem(folder, script) or ("is named twice" if script.name in seen else "")
        if problem:
            raise SuiteError(f"{path}: script {number} ({script.file}) {problem}.")
        seen.add(script.name)
    return suite


def _problem(folder: Path, script: LabelledScript) -> str:
    path = folder / script.file
    if Path(script.file).is_absolute() or ".." in Path(script.file).parts:
        return "is not below the suite's folder"
    if not path.is_file():
        return "does not exist"
    if not 1 <= script.ranks <= MOST_RANKS:
        return f"runs with 1 to {MOST_RANKS} ranks, not with {script.ranks}"
    # A fault may have no effect that can be seen; a sound script can have none.
    if script.label == "ok" and script.observable != "fine":
        return f"is labelled {script.label}, and yet {script.observable}"
    if any(not 0 <= rank < script.ranks for rank in script.culprits or ()):
        return f"has culprits that are none of its {script.ranks} ranks"
    if script.hang_after is not None and not 0.1 <= script.hang_after < 3600:
        return "says hang_after, which is 0.1 to 3600 seconds"
    return ""
