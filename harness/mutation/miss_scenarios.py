"""Mutants that were missed, each as a scenario that ``hanglab run`` runs."""

from __future__ import annotations

from pathlib import Path

from hanglab.analyzer.verdict import Status
from hanglab.harness.mutation.judgement import Fate, MutantJudgement
from hanglab.harness.mutation.mutant import SUPPORT_FILES, Mutant, copy_file, write_text
from hanglab.harness.mutation.observation import End
from hanglab.harness.mutation.source import mark_line
from hanglab.harness.mutation.truth import FaultEffect
from hanglab.harness.scenarios.declaration import default_status
from hanglab.recorder.case.backends import DEFAULT_BACKEND


def is_miss(judgement: MutantJudgement) -> bool:
    return judgement.fate is Fate.MISSED or bool(judgement.accused)


def write_scenario(
    mutant: Mutant,
    judgement: MutantJudgement,
    folder: Path,
    *,
    world_size: int,
    backend: str,
    hang_after_s: float,
    arguments: tuple[str, ...],
) -> Path:
    """Writes the scenario and its script into ``folder``; gives the scenario's file.

    Its control is the same script, in which nothing strikes then.  Raises ArtifactsError.
    """
    code = mutant.path.read_text(encoding="utf-8")
    for line in judgement.expected_lines if mutant.truth.has_line else []:
        code = mark_line(code, line, "SEEN")
    script = folder / mutant.path.name
    write_text(script, code)
    for name in SUPPORT_FILES:
        copy_file(mutant.path.with_name(name), folder / name)
    scenario = folder / f"{mutant.name}_scenario.py"
    told = _expectation(mutant, judgement, code, backend)
    if backend != DEFAULT_BACKEND:
        told += f"    backends=({backend!r},),\n".replace("'", '"')
    if arguments:
        told += f"    arguments={list(arguments)!r},\n"
    summary = mutant.summary[0].upper() + mutant.summary[1:]
    names = [name for name in ("Cause", "Expect", "Status") if f"{name}." in told or name[0] == "E"]
    text = (
        f'"""{summary}."""\n\n'
        f"from hanglab.harness import {', '.join(names)}, scenario\n\n"
        "scenario(\n"
        f'    name="{mutant.name}",\n'
        f'    script="{mutant.path.name}",\n'
        f"    world_size={world_size},\n"
        f"    hang_after={hang_after_s:g},\n"
        f"{told})\n"
    )
    write_text(scenario, text)
    return scenario


def _expectation(mutant: Mutant, judgement: MutantJudgement, code: str, backend: str) -> str:
    """The line of the declaration that says which verdict is right."""
    cause = mutant.truth.causes[0]
    words = [f"Cause.{cause.name}", f"culprits={{{', '.join(map(str, mutant.truth.culprits))}}}"]
    status = _status(mutant, judgement)
    if status is not default_status(cause, backend):
        words.append(f"status=Status.{status.name}")
    if not mutant.truth.has_line or not ("# SEEN" in code or "# FAULT" in code):
        words.append("location=None")
    return f"    expect=Expect({', '.join(words)}),\n"


def _status(mutant: Mutant, judgement: MutantJudgement) -> Status:
    """The status that the job's end allows."""
    if mutant.truth.effect is FaultEffect.SLOWS:
        return Status.SLOW
    if judgement.end is End.WELL:
        return Status.CORRUPT
    return Status.FAILED if judgement.end is End.FAILS else Status.HUNG


__all__ = ["is_miss", "write_scenario"]
