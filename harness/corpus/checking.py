"""Checks of a corpus: each entry whole, labelled, and fit to be analyzed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanglab.harness.corpus.analysis import analyze_entries
from hanglab.harness.corpus.entries import ARCHIVE, CorpusError, entry_names, read_entry
from hanglab.harness.corpus.labels import problems_of_label


@dataclass(frozen=True)
class CheckedEntry:
    """An entry, and one sentence on what is wrong with it; "" for a sound one."""

    name: str
    problem: str
    #: False where the label says that nothing is known of it but that nothing may crash.
    truth_known: bool = True


def check_corpus(corpus: Path, jobs: int, stop: threading.Event) -> Iterator[CheckedEntry]:
    """Every entry of a corpus.  Raises CorpusError where it has none."""
    names = entry_names(corpus)
    if not names:
        what = "holds no Case" if corpus.is_dir() else "is no folder"
        raise CorpusError(f"{corpus} {what}.", "`hanglab corpus add` puts Cases into a folder.")
    labels = {path.relative_to(corpus).as_posix() for path in corpus.rglob("*.json")}
    for label in sorted(labels - {f"{name}.json" for name in names}):
        name = label.removesuffix(".json")
        yield CheckedEntry(name, f"{name} has no archive: {name}{ARCHIVE} is missing.")
    known = {}
    for name in names:
        try:
            entry = read_entry(corpus, name)
        except CorpusError as error:
            yield CheckedEntry(name, str(error))
            continue
        problem = next(problems_of_label(entry), "")
        if problem:
            yield CheckedEntry(name, f"The label of {name} cannot be right: {problem}.")
        else:
            known[name] = entry.truth is not None
    for name, answer in analyze_entries(corpus, list(known), jobs, stop=stop):
        yield CheckedEntry(name, _problem(name, answer, known[name]), known[name])


def _problem(name: str, answer: dict[str, Any], known: bool) -> str:
    if "broken" in answer:
        return str(answer["crash"])
    if "crash" in answer:
        return f"{name} crashes the analyzer: {answer['crash']}."
    if "error" in answer and known:
        return f"{name} cannot be analyzed: {answer['error']}"
    return ""
