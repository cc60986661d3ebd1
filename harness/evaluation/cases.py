"""Labelled Cases, and the places that they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hanglab.harness.corpus.entries import (
    CorpusError,
    Truth,
    entry_names,
    read_entry,
    unpack_entry,
)
from hanglab.harness.errors import UsageError

#: Outcomes of jobs that showed their fault; of the others it is not known that it was there.
REPRODUCED = ("pass", "wrong verdict", "inconclusive")


class Source(Protocol):
    """A place that a Case comes from; it crosses over to worker processes."""

    def place(self, folder: Path) -> Path:
        """The folder to analyze: ``folder``, which is made, or one that is there.

        Raises HanglabError where there is none.
        """
        ...


@dataclass(frozen=True)
class PackedCase:
    """An entry of a corpus."""

    corpus: Path
    name: str

    def place(self, folder: Path) -> Path:
        unpack_entry(self.corpus, self.name, folder)
        return folder


@dataclass(frozen=True)
class StoredCase:
    """A folder."""

    path: Path

    def place(self, folder: Path) -> Path:
        return self.path


@dataclass(frozen=True)
class LabelledCase:
    """A Case of which it is known what a verdict should say; None where nothing is known."""

    name: str
    truths: list[Truth] | None
    source: Source


@dataclass
class CaseSet:
    """Cases to judge, and what could not be taken, in sentences by name."""

    cases: list[LabelledCase] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)

    def add(self, other: CaseSet) -> None:
        """Take in another set.  Of Cases with one name the later ones get a number."""
        taken = {case.name for case in self.cases}
        for case in other.cases:
            name, number = case.name, 2
            while name in taken:
                name, number = f"{case.name}#{number}", number + 1
            taken.add(name)
            self.cases.append(LabelledCase(name, case.truths, case.source))
        self.broken.update(other.broken)


def default_corpus() -> Path:
    """The corpus of hanglab's repository.  Raises UsageError where hanglab is installed without."""
    corpus = Path(__file__).resolve().parents[2] / "tests" / "corpus"
    if not corpus.is_dir():
        raise UsageError(
            "hanglab is installed here without its corpus.",
            "Give labelled Cases with --corpus DIR, or --simulated N, or --live.",
        )
    return corpus


def read_corpus(corpus: Path) -> CaseSet:
    """The entries of a corpus.  Raises CorpusError where it has none."""
    names = entry_names(corpus)
    if not names:
        what = "holds no Case" if corpus.is_dir() else "is no folder"
        raise CorpusError(
            f"{corpus} {what}.", "`hanglab corpus add` puts labelled Cases into a folder."
        )
    found = CaseSet()
    for name in names:
        try:
            truths = read_entry(corpus, name).truth
        except CorpusError as error:
            found.broken[name] = str(error)
            continue
        if truths is not None and not truths:
            found.broken[name] = f"The label of {name} says no truth."
            continue
        found.cases.append(LabelledCase(name, truths, PackedCase(corpus.resolve(), name)))
    return found


def read_runs(folder: Path) -> CaseSet:
    """Cases with a ``truth.json`` beside them, as ``hanglab run`` and ``mutate`` leave them.

    Those that did not show their fault, or of which nothing is expected, are left out.  Raises
    CorpusError where there is none.
    """
    found = CaseSet()
    for path in sorted(folder.rglob("truth.json")):
        case = path.parent / "case"
        if not case.is_dir():
            continue
        name = path.parent.relative_to(folder).as_posix()
        try:
            run = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            # Of a plain script nothing is expected.
            if run.get("outcome") not in REPRODUCED or run["expected"] is None:
                continue
            truths = truths_of(run["expected"])
        except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
            found.broken[name] = f"{path} is no truth: {type(error).__name__}: {error}."
            continue
        found.cases.append(LabelledCase(name, truths, StoredCase(case.resolve())))
    if not found.cases and not found.broken:
        raise CorpusError(
            f"{folder} holds no Case that showed the fault that was expected.",
            "Give a folder that `hanglab run` or `hanglab mutate` wrote.",
        )
    return found


def truths_of(expected: dict[str, Any]) -> list[Truth]:
    """The expectation, and the further findings, any of which a verdict may lead with."""
    file, lines = _location(expected.get("location"))
    leading = Truth(
        expected["status"], expected.get("cause"), expected.get("culprits", []), lines, file
    )
    others: list[dict[str, Any]] = list(expected.get("also", ()))
    return [
        leading,
        *(Truth(one["status"], one.get("cause"), one.get("culprits", [])) for one in others),
    ]


def _location(location: str | None) -> tuple[str | None, list[int]]:
    """File and lines of what an expectation says, such as ``train.py:12 or 14``."""
    if not location:
        return None, []
    file, _, lines = location.rpartition(":")
    return file, [int(line) for line in lines.split(" or ")]
