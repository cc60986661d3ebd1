"""The data of a page, gathered from a job's evidence and its verdict."""

from __future__ import annotations

import datetime
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Unusable
from hanglab.harness.report.explanation.commands import MAKES_A_PAGE
from hanglab.harness.report.explanation.explaining import explain_examined
from hanglab.harness.report.explanation.parts import Explanation
from hanglab.harness.report.page.examined_job import ExaminedJob
from hanglab.harness.report.page.host_charts import host_charts
from hanglab.harness.report.page.rank_classes import rank_classes
from hanglab.harness.report.page.records import Fact, PageData
from hanglab.harness.report.page.side_by_side import side_by_side
from hanglab.harness.report.page.stack_trees import stack_trees
from hanglab.harness.report.page.straggler_scores import score_table
from hanglab.harness.report.page.timeline_rows import timeline_data
from hanglab.harness.report.page.wait_graph import wait_data
from hanglab.harness.report.rank_ranges import named
from hanglab.recorder.case.reader import CaseReader


def page_data(job: ExaminedJob) -> PageData:
    """All that a page shows of a job."""
    facts, verdict = job.facts, job.verdict
    classes = rank_classes(facts, verdict)
    return PageData(
        title=job.name,
        version=version("hanglab"),
        verdict=verdict,
        explanation=_beside_the_page(explain_examined(job.examined, job.folder)),
        job=_job(facts),
        classes=classes,
        timeline=timeline_data(facts, verdict, classes, job.faults),
        stacks=stack_trees(facts, classes),
        waits=wait_data(facts, verdict),
        side_by_side=side_by_side(facts, verdict, classes),
        scores=score_table(job.case) if facts.case else None,
        hosts=host_charts(facts, verdict.culprits),
        missing=_missing(facts, job.case),
        would_decide=list(verdict.inputs.would_decide),
    )


def _beside_the_page(told: Explanation) -> Explanation:
    """The explanation without the command that makes this page."""
    commands = tuple(one for one in told.do_now if not one.line.startswith(MAKES_A_PAGE))
    return replace(told, do_now=commands)


def _job(facts: CaseFacts) -> list[Fact]:
    """Facts of the job itself."""
    found = [Fact(name="ranks", value=str(len(facts.ranks)))]

    def fact(name: str, value: str) -> None:
        if value:
            found.append(Fact(name=name, value=value))

    job = facts.job
    if facts.hosts:
        fact("hosts", ", ".join(sorted(facts.hosts)[:8]) + (" ..." if len(facts.hosts) > 8 else ""))
    if job is not None:
        fact("started", _time(job.started.wall_ns))
        if job.trigger is not None:
            words = job.trigger.kind.replace("_", " ")
            quiet = f", after {job.trigger.quiet_s:.1f} s without movement"
            still = quiet if job.trigger.quiet_s else ""
            fact("captured", f"{_time(job.trigger.at.wall_ns)} ({words}{still})")
    for view in facts.ranks.values():
        if view.process is not None:
            python = view.process.python
            torch = f", torch {python.torch_version}" if python.torch_version else ""
            fact("Python", f"{python.version}{torch}")
            fact("command", " ".join(view.process.argv))
            break
    backends = {group.backend for view in facts.ranks.values() for group in view.groups}
    fact("backends", ", ".join(sorted(backends - {""})))
    return found


def _time(wall_ns: int) -> str:
    moment = datetime.datetime.fromtimestamp(wall_ns / 1e9, tz=datetime.timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _missing(facts: CaseFacts, case: Path) -> list[Unusable]:
    """Evidence that is not there, or was of no use, and why."""
    found = []
    if facts.inputs.missing_ranks:
        words = "nothing of them is there"
        found.append(Unusable(named(facts.inputs.missing_ranks), words))
    found += [*facts.inputs.unusable, *facts.inputs.set_aside]
    if facts.case:
        reasons: dict[tuple[str, str], list[int]] = {}
        for absence in CaseReader(case).absent:
            ranks = reasons.setdefault((absence.what, absence.reason), [])
            if absence.rank is not None:
                ranks.append(absence.rank)
        for (what, reason), ranks in reasons.items():
            found.append(Unusable(f"{what} of {named(ranks)}" if ranks else what, reason))
    return found
