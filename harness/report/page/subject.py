"""What a page or a trace is about: the evidence of one job, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hanglab.analyzer.calibration import calibrate
from hanglab.analyzer.engine import conclude, gravest
from hanglab.analyzer.facts.assembly import gather_worlds
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Verdict
from hanglab.harness.jobs.outcome import describe


@dataclass
class Subject:
    """One job.  ``beside`` tells of others whose dumps lie in the same folder."""

    name: str
    facts: CaseFacts
    verdict: Verdict
    beside: list[str] = field(default_factory=list)


def load_subject(path: Path) -> Subject:
    """The job in a Case or a folder of dumps; of several the one that people have to know of.

    Raises InputError where nothing there can be analysed.
    """
    worlds = gather_worlds(path)
    verdicts = [conclude(facts) for facts in worlds]
    chosen = gravest(worlds, verdicts)
    number = next(n for n, verdict in enumerate(verdicts) if verdict is chosen)
    others = [
        f"{world.inputs.world or 'a job'} ({len(world.ranks)} ranks): {describe(verdict)}"
        for n, (world, verdict) in enumerate(zip(worlds, verdicts, strict=True))
        if n != number
    ]
    return Subject(_name(path.resolve()), worlds[number], calibrate(chosen), others)


def _name(path: Path) -> str:
    """The folder's name; of a job in a run its scenario, variant and number."""
    in_run = (path / "case").is_dir()
    return "/".join(path.parts[-3:]) if in_run else path.name
