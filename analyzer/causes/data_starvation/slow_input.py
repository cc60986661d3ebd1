"""Waits for input: ``input_starved`` where all ranks have them, ``slow_input`` where one has.

The absolute share of time spent waiting for input comes before any comparison
between ranks: ranks that all starve lock in phase, and relative scores then
accuse an arbitrary one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from hanglab.analyzer.causes.straggler.lost_time import COST, FEWEST, FLOOR_MS, MAIN_PART, JobTiming
from hanglab.analyzer.facts.evidence import Evidence as Known
from hanglab.analyzer.facts.evidence import RankView
from hanglab.analyzer.facts.sampled_lines import input_line
from hanglab.analyzer.proposal import Order, Proposal, propose
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.recorder.case.progress_records import Progress

#: Share of the time from which on waiting for input is the job's trouble.
STARVED = 0.4
#: Share of the time that a loader must need to make its batches to be behind as well: where
#: all are too slow, the slowest keeps the others waiting, and those rest for that time.
BUSY_LOADER = 0.6
#: Share from which on a loader never rests, and share below which it keeps up with ease.
SATURATED = 0.85
KEEPS_UP = 0.5
#: What the waits of ranks must sum up to where no loader ever rests.
TOGETHER = 0.15
#: A rank's waits against the median of its peers'.
EXCESS = 1.5
#: A rank that waits less for its input than this share of the time has a loader that keeps up.
HIDDEN = 0.05


@dataclass(frozen=True)
class Inputs:
    """Waits for a data loader, without the first and without the longest tenth.

    Workers that start, or one cache that is cold, are no habit.
    """

    count: int
    wall_ns: int
    span_ns: int
    #: Share of the time that the loader needs to make the batches; None if not timed.
    #: Near 1 it makes no batch sooner than the rank takes it, whoever waits for whom.
    making: float | None = None
    #: The rank makes its batches itself: it waits for all that they take.
    inline: bool = False
    #: How often a batch is made at best, in ms: the workers' time less their waits for a
    #: processor.  None if not told.
    made_ms: float | None = None

    @property
    def share(self) -> float:
        return self.wall_ns / self.span_ns if self.span_ns > 0 else 0.0

    @property
    def ms(self) -> float:
        return self.wall_ns / self.count / 1e6 if self.count else 0.0


def input_waits(view: RankView) -> Inputs | None:
    """None where there were too few to tell."""
    progress = view.progress
    if progress is None:
        return None
    names = {t.section for t in progress.section_totals if t.kind == "input"}
    events = [e for e in progress.section_events if e.section in names][1:]
    if len(events) < FEWEST:
        return None
    span = events[-1].started_ns + events[-1].wall_ns - events[0].started_ns
    events.sort(key=lambda e: e.wall_ns)
    rare = events[-max(1, len(events) // 10) :]
    events = events[: -len(rare)]
    span -= sum(e.wall_ns for e in rare)
    return Inputs(
        len(events),
        sum(e.wall_ns for e in events),
        span,
        _making(progress, span),
        inline=[f.worker for f in progress.fetches if f.count] == [-1],
        made_ms=_made_ms(progress),
    )


def _made_ms(progress: Progress) -> float | None:
    made = [(f.wall_ns - f.waited_ns, f.count) for f in progress.fetches if f.waited_ns is not None]
    count = sum(n for _, n in made)
    return sum(ns for ns, _ in made) / len(made) / count / 1e6 if count else None


def _making(progress: Progress, span_ns: int) -> float | None:
    workers = [f for f in progress.fetches if f.count and f.worker >= 0]
    if not workers or span_ns <= 0:
        return None
    # The workers share the batches; they could have made them in this time.
    needed = sum(f.wall_ns for f in workers) / len(workers)
    lasted = max(f.last_ns for f in workers) - min(f.first_ns for f in workers)
    return needed / lasted if lasted > 0 else None


def all_waits(known: Known) -> dict[int, Inputs]:
    return {r: w for r, v in known.ranks.items() if (w := input_waits(v)) is not None}


def input_starved(known: Known, waits: Mapping[int, Inputs]) -> Iterator[Proposal]:
    """All ranks wait for input, at once or in turns."""
    starved = [
        r for r, w in waits.items() if w.share >= STARVED or (w.making or 0.0) >= BUSY_LOADER
    ]
    # They wait in turns: whose loader is behind just then keeps all the others.
    waiting = sorted(
        (r for r, w in waits.items() if w.share >= HIDDEN and w.ms >= FLOOR_MS),
        key=lambda r: -waits[r].share,
    )
    together = sum(waits[r].share for r in waiting)
    always_behind = all((w.making or 0.0) >= SATURATED for w in waits.values())
    enough = TOGETHER if always_behind else STARVED
    if together >= enough and len(starved) == len(known.ranks):
        yield _starved(known, waits, waiting)


def _starved(known: Known, waits: Mapping[int, Inputs], waiting: list[int]) -> Proposal:
    """``waiting`` are seen to wait; the others wait for them, behind a loader no faster."""
    ranks = sorted(known.ranks)
    share = min(1.0, sum(waits[r].share for r in waiting))
    if all(waits[r].share >= STARVED for r in ranks):
        share = median(waits[r].share for r in ranks)
    ms = waits[waiting[0]].ms
    return propose(
        known,
        Order.SLOW,
        Cause.INPUT_STARVED,
        ranks,
        status=Status.SLOW,
        confidence=min(0.99, 0.6 + share / 2),
        summary=f"The job waits for its data loaders {share:.0%} of the time; every rank's is "
        "too slow.",
        evidence=[
            Evidence(
                "progress",
                r,
                f"waited {w.ms:.1f} ms for each of {w.count} batches, {w.share:.0%} of the time"
                + (f"; its loader was busy {w.making:.0%}" if w.making is not None else ""),
            )
            for r, w in sorted(waits.items())
        ],
        victims=[],
        location=input_line(known, waiting[0]),
        effect=Effect(
            section="dataloader", ms_per_step=round(ms, 3), share_of_step=round(share, 4)
        ),
    )


def slow_input(timing: JobTiming, waits: Mapping[int, Inputs]) -> Iterator[Proposal]:
    """A rank whose loader does not keep up while its peers' do."""
    if len(waits) < 2 or not timing.long_enough:
        return
    found = timing.found
    for rank, wait in waits.items():
        usual = median(w.ms for r, w in waits.items() if r != rank)
        excess = wait.ms - usual
        if _may_starve_unseen(waits, rank):
            continue
        if wait.making is not None and wait.making < KEEPS_UP:
            continue  # its loader makes batches fast enough; they came late for another reason
        if _merely_kept(waits, rank):
            continue
        cost = max(found.late_share(rank), found.excess_share(rank))
        cost -= timing.share(timing.run_queue_delay_ns(rank))
        if (
            wait.share >= COST
            and wait.ms >= EXCESS * usual
            and max(excess, _own_ms(timing, rank)) >= FLOOR_MS
            and cost >= COST
            and found.late_share(rank) >= COST / 2
        ):
            yield propose(
                timing.known,
                Order.SLOW,
                Cause.SLOW_INPUT,
                [rank],
                status=Status.SLOW,
                confidence=min(0.97, 0.65 + cost),
                summary=f"Rank {rank} gets its input {wait.ms / max(usual, 1e-3):.1f} times as "
                "slowly as its peers, which wait for it.",
                evidence=[
                    Evidence("progress", r, f"waited {w.ms:.1f} ms per batch")
                    for r, w in sorted(waits.items())
                ]
                + [timing.lag(rank)],
                location=input_line(timing.known, rank),
                effect=Effect(
                    section="dataloader",
                    ms_per_step=round(excess, 3),
                    share_of_step=round(min(1.0, excess * wait.count * 1e6 / wait.span_ns), 4),
                ),
            )


def _own_ms(timing: JobTiming, rank: int) -> float:
    """Waits for input in the rank's own time beyond its peers', if they are most of its excess."""
    waited = timing.beyond("input_ns", rank) or 0.0
    if rank not in timing.did or waited < MAIN_PART * timing.found.excess_ns[rank]:
        return 0.0
    return timing.ms_per_step(waited)


def _merely_kept(waits: Mapping[int, Inputs], rank: int) -> bool:
    """Whether its batches take no longer than the peers' but for waits for a processor."""
    made = {r: w.made_ms for r, w in waits.items()}
    mine = made.pop(rank)
    theirs = [ms for ms in made.values() if ms is not None]
    return mine is not None and len(theirs) == len(made) and mine < EXCESS * median(theirs)


def _may_starve_unseen(waits: Mapping[int, Inputs], rank: int) -> bool:
    """Whether another rank's loader may be as slow, hidden by the time its rank waits anyway."""
    mine = waits[rank].making
    others = [w for r, w in waits.items() if r != rank]
    if mine is not None and all(w.making is not None for w in others):
        return mine < EXCESS * median(w.making or 0.0 for w in others)
    return any(w.making is None and not w.inline and w.share >= HIDDEN for w in others)
