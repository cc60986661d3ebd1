"""The job that a page or a trace is about: its evidence, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hanglab.analyzer.engine import Examination, examine
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Verdict
from hanglab.harness.report.timeline.spans import Moment
from hanglab.harness.report.timeline.struck_faults import struck_faults


@dataclass
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

    @cached_property
    def faults(self) -> list[Moment]:
        """Faults that hanglab did to a job of its own."""
        return struck_faults(self.folder)

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
