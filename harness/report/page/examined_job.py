"""The job that a page or a trace is about: its evidence, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hanglab.analyzer.engine import Examination, examine
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Verdict


@dataclass(frozen=True)
class ExaminedJob:
    """One job, by the name of its folder."""

    name: str
    folder: Path
    examined: Examination

    @property
    def facts(self) -> CaseFacts:
        return self.examined.facts

    @property
    def verdict(self) -> Verdict:
        return self.examined.verdict

    @property
    def case(self) -> Path:
        """The Case itself, where the folder is that of a job in a run."""
        return self.folder / "case" if _is_in_run(self.folder) else self.folder


def load_job(folder: Path) -> ExaminedJob:
    """The job in a Case or a folder of dumps; of several the one that people have to know of.

    Raises InputError where nothing there can be analysed.
    """
    examined = examine(folder)
    path = folder.resolve()
    # Of a job in a run its scenario, variant and number.
    return ExaminedJob(
        "/".join(path.parts[-3:]) if _is_in_run(path) else path.name, folder, examined
    )


def _is_in_run(folder: Path) -> bool:
    return (folder / "case" / "hosts").is_dir()
