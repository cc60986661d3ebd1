"""Moments of a job: captures, faults, exceptions, ends, and what the kernel said."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.job_clock import ahead_of_job
from hanglab.harness.report.timeline.spans import Moment

_TRIGGERS = {
    "no_progress": "captured, as nothing moved",
    "exit": "captured, as a rank ended",
    "timeout_dump": "captured, as a time limit had struck",
    "deadline": "captured at the deadline",
    "request": "captured on request",
    "interrupt": "captured at an interrupt",
}


def moments_of(facts: CaseFacts) -> list[Moment]:
    """All moments of a job that its evidence tells of."""
    found = [*_of_job(facts), *_of_hosts(facts)]
    for view in facts.ranks.values():
        found += _of_rank(view)
    return found


def _of_job(facts: CaseFacts) -> Iterator[Moment]:
    job = facts.job
    if job is None:
        return
    trigger = job.trigger
    if trigger is not None:
        words = _TRIGGERS[trigger.kind]
        if trigger.quiet_s:
            words += f" for {trigger.quiet_s:.1f} s"
        if trigger.detail:
            words += f": {trigger.detail}"
        yield Moment(trigger.at.wall_ns, "capture", words)
    if job.interrupted is not None:
        yield Moment(job.interrupted.wall_ns, "exit", "the job was asked to end")


def _of_hosts(facts: CaseFacts) -> Iterator[Moment]:
    for name, host in facts.hosts.items():
        ahead = ahead_of_job(facts.job, name)
        for sample in host.samples:
            for line in sample.kernel:
                yield Moment(sample.at.wall_ns - ahead, "kernel", line, host=name)


def _of_rank(view: RankView) -> Iterator[Moment]:
    for raised in (*view.exceptions, *view.handled):
        yield Moment(
            raised.at.wall_ns, "exception", f"{raised.type}: {raised.message}", view.rank, view.host
        )
    for end in view.program_ends:
        code = "" if end.code is None else f" with {end.code}"
        words = "its program came to its end" if end.how == "end" else f"called {end.how}{code}"
        yield Moment(end.at.wall_ns, "exit", words, view.rank, view.host)
    for child in view.children:
        words = f"{child.kind} {child.pid} ended: {_ending(child.code, child.signal)}"
        yield Moment(child.at.wall_ns, "exit", words, view.rank, view.host)
    if view.exit is not None:
        words = "was ended by the recorder" if view.exit.by_recorder else view.exit.words
        yield Moment(view.exit.at.wall_ns, "exit", words, view.rank, view.host)
    for sample in view.rank_stacks:
        yield Moment(
            sample.at.wall_ns - view.clock_ahead_ns, "stacks", "stacks taken", view.rank, view.host
        )


def _ending(code: int | None, signal: int | None) -> str:
    return f"signal {signal}" if signal is not None else f"code {code}"
