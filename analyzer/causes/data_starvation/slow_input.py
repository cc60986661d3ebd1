"""Waits for input: ``input_starved`` where all ranks have them, ``slow_input`` where one has.

The absolute share of time spent waiting for input comes before any comparison
between ranks: ranks that all starve lock in phase, and relative scores then
accuse an arbitrary one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.job_timing import JobTiming
from hanglab.analyzer.facts.sampled_lines import input_line
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.strengths import CANDIDATES, KERNEL_SAYS, PROVED, SLOW
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.slowness.batch_waits import (
    BatchWait,
    cost_of_slow_input,
    input_excess_ms,
    starved_ranks,
    starved_share,
)
from hanglab.recorder.slowness.thresholds import FEWEST_IN_JOB, SHORTEST_JOB_NS


def all_waits(facts: CaseFacts) -> dict[int, BatchWait]:
    """Waits of the ranks that drew enough batches to tell."""
    return {r: w for r, v in facts.ranks.items() if (w := input_wait(v)) is not None}


def input_wait(view: RankView) -> BatchWait | None:
    """Waits for the data loader without the first and without the longest tenth.

    Workers that start, or one cache that is cold, do not come again.  None where there
    were too few to tell.
    """
    progress = view.progress
    if progress is None:
        return None
    names = {t.section for t in progress.section_totals if t.kind == "input"}
    events = [e for e in progress.section_events if e.section in names][1:]
    if len(events) < FEWEST_IN_JOB:
        return None
    span = events[-1].started_ns + events[-1].wall_ns - events[0].started_ns
    if span < SHORTEST_JOB_NS:
        return None
    events.sort(key=lambda e: e.wall_ns)
    rare = events[-max(1, len(events) // 10) :]
    events = events[: -len(rare)]
    span -= sum(e.wall_ns for e in rare)
    waited = sum(e.wall_ns for e in events)
    return BatchWait(
        share=waited / span if span > 0 else 0.0,
        busy=_busy(progress, span),
        count=len(events),
        wait_ms=waited / len(events) / 1e6,
        batch_ms=_batch_ms(progress),
        in_process=[f.worker for f in progress.fetches if f.count] == [-1],
    )


def _batch_ms(progress: Progress) -> float | None:
    made = [(f.wall_ns - f.waited_ns, f.count) for f in progress.fetches if f.waited_ns is not None]
    count = sum(n for _, n in made)
    return sum(ns for ns, _ in made) / len(made) / count / 1e6 if count else None


def _busy(progress: Progress, span_ns: int) -> float | None:
    workers = [f for f in progress.fetches if f.count and f.worker >= 0]
    if not workers or span_ns <= 0:
        return None
    # The workers share the batches; they could have made them in this time.
    needed = sum(f.wall_ns for f in workers) / len(workers)
    lasted = max(f.last_ns for f in workers) - min(f.first_ns for f in workers)
    return needed / lasted if lasted > 0 else None


def input_starved(known: CaseFacts, waits: Mapping[int, BatchWait]) -> Iterator[Proposal]:
    """All ranks wait for input, at once or in turns."""
    waiting = starved_ranks(waits, len(known.ranks))
    if not waiting:
        return
    share = starved_share(waits, waiting)
    yield propose(
        known,
        Cause.INPUT_STARVED,
        sorted(known.ranks),
        status=Status.SLOW,
        confidence=min(KERNEL_SAYS, CANDIDATES + share / 2),
        summary=f"The job waits for its data loaders {share:.0%} of the time; every rank's is "
        "too slow.",
        evidence=[
            Evidence(
                "progress",
                r,
                f"waited {w.wait_ms:.1f} ms for each of {w.count} batches, {w.share:.0%} of the "
                "time" + (f"; its loader was busy {w.busy:.0%}" if w.busy is not None else ""),
            )
            for r, w in sorted(waits.items())
        ],
        victims=[],
        location=input_line(known, waiting[0]),
        effect=Effect(
            section="dataloader",
            ms_per_step=round(waits[waiting[0]].wait_ms, 3),
            share_of_step=round(share, 4),
        ),
    )


def slow_input(timing: JobTiming, waits: Mapping[int, BatchWait]) -> Iterator[Proposal]:
    """A rank whose loader does not keep up while its peers' do."""
    window = timing.window
    if len(waits) < 2 or not window.long_enough:
        return
    for rank, wait in waits.items():
        cost = cost_of_slow_input(window, waits, rank)
        if cost is None:
            continue
        excess = input_excess_ms(waits, rank)
        times = wait.wait_ms / max(wait.wait_ms - excess, 1e-3)
        yield propose(
            timing.known,
            Cause.SLOW_INPUT,
            [rank],
            status=Status.SLOW,
            confidence=min(PROVED, SLOW + cost),
            summary=f"Rank {rank} gets its input {times:.1f} times as slowly as its peers, which "
            "wait for it.",
            evidence=[
                Evidence("progress", r, f"waited {w.wait_ms:.1f} ms per batch")
                for r, w in sorted(waits.items())
            ]
            + [timing.lag(rank)],
            location=input_line(timing.known, rank),
            effect=Effect(
                section="dataloader",
                ms_per_step=round(excess, 3),
                share_of_step=round(min(1.0, excess / wait.wait_ms * wait.share), 4),
            ),
        )
