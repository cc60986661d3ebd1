"""Mutants as labelled Cases: the folder that ``hanglab mutate`` leaves, with its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hanglab.harness.corpus.entries import CorpusError, Truth
from hanglab.harness.evaluation.cases import CaseSet, LabelledCase, StoredCase

REPORT = "report.json"
#: Statuses of a job by how it ended: what went on to its end was slow, or has wrong results.
_STATUSES = {"hangs": ("hung", "failed"), "fails": ("failed", "hung")}
_WELL = ("slow", "corrupt")
#: Fates of mutants whose fault struck and could be seen.
_STRUCK = ("found", "missed")


def read_mutants(folder: Path) -> CaseSet:
    """The mutants that struck, and the original where its job is there.

    Raises CorpusError for a report that cannot be read.
    """
    path = folder / REPORT
    try:
        report = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        mutants: list[dict[str, Any]] = report["mutants"]
    except (OSError, msgspec.DecodeError, KeyError) as error:
        raise CorpusError(
            f"{path} is no report: {type(error).__name__}: {error}.",
            "Give the folder that `hanglab mutate` wrote.",
        ) from error
    found = CaseSet()
    for mutant in mutants:
        name = str(mutant.get("mutant", "unnamed"))
        try:
            _take(found, folder, name, mutant)
        except (KeyError, TypeError, ValueError) as error:
            found.broken[name] = f"{path} tells too little of {name}: {error!r}."
    for case in sorted(folder.glob("jobs/*/control/*/case")):
        if case.parts[-4] != "counted":
            name = f"{folder.name}/original"
            found.cases.append(LabelledCase(name, [Truth("healthy")], StoredCase(case.resolve())))
    return found


def _take(found: CaseSet, folder: Path, name: str, mutant: dict[str, Any]) -> None:
    if mutant["fate"] not in _STRUCK:
        return
    case = Path(mutant["artifacts"]) / "case"
    if not case.is_dir():
        # The folder was moved since.
        case = folder / "jobs" / name / "fault" / "0" / "case"
    lines = mutant["expected_lines"] if mutant["line_right"] is not None else []
    truths = [
        Truth(status, cause, mutant["expected_culprits"], lines)
        for status in _STATUSES.get(mutant["end"], _WELL)
        for cause in mutant["expected_causes"]
    ]
    if not case.is_dir():
        found.broken[name] = f"The Case of {name} is not there any more."
    else:
        found.cases.append(
            LabelledCase(f"{folder.name}/{name}", truths, StoredCase(case.resolve()))
        )
