"""Mutants as a folder of plain scripts with ``suite.json``, which says what is true of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from hanglab.harness.jobs.run_folder import write_json
from hanglab.harness.mutation.judgement import Fate, MutantJudgement
from hanglab.harness.mutation.mutant import Mutant, copy_file, write_support, write_text
from hanglab.harness.mutation.observation import End
from hanglab.harness.mutation.source import Script
from hanglab.harness.mutation.table import MutationReport
from hanglab.harness.mutation.truth import FaultEffect


class SuiteScript(msgspec.Struct, kw_only=True):
    """One script of the suite."""

    file: str
    ranks: int
    #: ``ok`` or ``error``.
    label: str
    #: The cause, as the catalogue has it; null where nothing is wrong.
    class_: str | None = msgspec.field(name="class")
    culprits: list[int]
    lines: list[int]
    #: ``hangs``, ``fails``, ``silently_wrong`` or ``fine``.
    observable: str


class Suite(msgspec.Struct):
    #: That on which the scripts did what is said of them.
    backend: str
    scripts: list[SuiteScript]


def write_suite(
    folder: Path,
    script: Script,
    report: MutationReport,
    mutants: Sequence[Mutant],
) -> int:
    """Writes the original and the mutants that struck; gives their number.

    What is observable is what their jobs did, whatever the verdict was.  Raises ArtifactsError.
    """
    original = SuiteScript(
        file=script.path.name,
        ranks=report.world_size,
        label="ok",
        class_=None,
        culprits=[],
        lines=[],
        observable="fine",
    )
    scripts = [original]
    write_text(folder / script.path.name, script.rewrite({}, None))
    write_support(folder, script.path)
    by_name = {mutant.name: mutant for mutant in mutants}
    for judgement in report.mutants:
        mutant = by_name[judgement.mutant]
        if judgement.fate in (Fate.NOT_STRUCK, Fate.ERROR):
            continue
        copy_file(mutant.path, folder / mutant.path.name)
        scripts.append(
            SuiteScript(
                file=mutant.path.name,
                ranks=report.world_size,
                label="error",
                class_=mutant.truth.causes[0].value,
                culprits=mutant.truth.culprits,
                lines=judgement.expected_lines if mutant.truth.has_line else [],
                observable=_observable(mutant, judgement),
            )
        )
    write_json(folder / "suite.json", Suite(report.backend, scripts))
    return len(scripts)


def _observable(mutant: Mutant, judgement: MutantJudgement) -> str:
    if judgement.end is End.HANGS:
        return "hangs"
    if judgement.end is End.FAILS:
        return "fails"
    unharmed = judgement.same_output or mutant.truth.effect is FaultEffect.SLOWS
    return "fine" if unharmed else "silently_wrong"
