"""A job that moves, but slowly: starved of data, or held up by one rank.

The absolute share of time spent waiting for input comes before any comparison
between ranks: ranks that all starve lock in phase, and relative scores then
accuse an arbitrary one.  A rank is called slow only where its own work (its
processor time, or its wait for input) exceeds its peers' **and** its peers
lose the time to it: processor time is not stretched by a crowded machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from hanglab.analyzer.evidence.arrival import Arrivals, arrivals
from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.evidence.model import RankView
from hanglab.analyzer.heuristics.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Location, Status
from hanglab.recorder.case.boundary import Progress
from hanglab.recorder.case.records import Frame

#: Share of the time from which on waiting for input is the job's trouble.
STARVED = 0.4
#: Share of the time that a loader must need to make its batches to be behind as well: where
#: all are too slow, the slowest keeps the others waiting, and those rest for that time.
BUSY_LOADER = 0.6
#: Share from which on a loader never rests, and share below which it keeps up with ease.
SATURATED = 0.85
KEEPS_UP = 0.5
#: A rank's own work against the median of its peers'.
EXCESS = 1.5
#: Share of the time that a slow rank must cost its peers.
COST = 0.15
#: Share of the time that its excess of processor time must fill: less than the cost, as
#: a crowded machine stretches the work.
WORK = 0.05
#: Least excess of processor time: it is read five times a second only, so less could be a
#: matter of when.
LEAST_NS = 150_000_000
#: Fewest operations or sections, and shortest time, that say anything.
FEWEST = 12
SHORTEST_NS = 500_000_000
FLOOR_MS = 2.0
#: A single wait from which on one rank's work holds the job up, at most; of a job that is
#: watched with less patience, this many times that patience.
LONG_NS = 8_000_000_000
LONG_PATIENCE = 3
#: Without more processor time: share of the time that a rank must cost its peers, share of
#: the operations that it must be last in, and share of its samples at one line of its own.
LATE = 0.3
ALWAYS = 0.8
OWN_LINE = 0.5
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

    @property
    def share(self) -> float:
        return self.wall_ns / self.span_ns if self.span_ns > 0 else 0.0

    @property
    def ms(self) -> float:
        return self.wall_ns / self.count / 1e6 if self.count else 0.0


def input_waits(view: RankView) -> Inputs | None:
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
    return Inputs(len(events), sum(e.wall_ns for e in events), span, _making(progress, span))


def _making(progress: Progress, span_ns: int) -> float | None:
    workers = [f for f in progress.fetches if f.count]
    if not workers or span_ns <= 0:
        return None
    # The workers share the batches; they could have made them in this time.
    needed = sum(f.wall_ns for f in workers) / len(workers)
    lasted = max(f.last_ns for f in workers) - min(f.first_ns for f in workers)
    return needed / lasted if lasted > 0 else None


def _steps(known: Known, found: Arrivals | None) -> int:
    counts = [v.progress.step + 1 for v in known.ranks.values() if v.progress]
    steps = min(counts) if counts else 0
    return steps or (found.operations if found else 0) or 1


def slow_job(known: Known) -> Iterator[Proposal]:
    """``input_starved``, ``slow_input`` and ``slow_compute`` of a job that moves or has ended."""
    if known.stuck or not known.case or any(v.failed for v in known.ranks.values()):
        return
    waits = {r: w for r, v in known.ranks.items() if (w := input_waits(v)) is not None}
    found = arrivals(known.dumps)
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
    enough = COST if always_behind else STARVED
    if together >= enough and len(starved) == len(known.ranks):
        yield _starved(known, waits, waiting)
        return
    if found is not None:
        yield from _alone(known, found)
    slow = list(_slow_input(known, waits, found))
    yield from slow
    named = {rank for proposal in slow for rank in proposal.finding.culprits}
    yield from _slow_compute(known, found, named)


def _starved(known: Known, waits: dict[int, Inputs], waiting: list[int]) -> Proposal:
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
        location=_input_line(known, waiting[0]),
        effect=Effect(
            section="dataloader", ms_per_step=round(ms, 3), share_of_step=round(share, 4)
        ),
    )


def _alone(known: Known, found: Arrivals) -> Iterator[Proposal]:
    """``rank0_work``: one long stretch that only one rank worked in while the others waited."""
    patience = known.job.hang_after_s if known.job else None
    long_ns = min(LONG_NS, LONG_PATIENCE * patience * 1e9) if patience else LONG_NS
    for rank, waited in found.longest_ns.items():
        if waited < long_ns or waited < found.span_ns / 3:
            continue
        line = _busiest_line(known, rank)
        yield propose(
            known,
            Order.SLOW,
            Cause.RANK0_WORK,
            [rank],
            status=Status.SLOW,
            confidence=0.85,
            summary=f"Rank {rank} worked alone for {waited / 1e9:.1f} s"
            f"{name_line(known.ranks[rank].location(line) if line else None)} while the others "
            "waited for it in one operation.",
            evidence=[
                Evidence(
                    "flight_recorder",
                    rank,
                    f"entered one operation {waited / 1e9:.1f} s after its peers",
                )
            ],
            location=known.ranks[rank].location(line) if line else None,
            effect=Effect(
                section=None,
                ms_per_step=round(waited / 1e6, 3),
                share_of_step=round(waited / found.span_ns, 4),
            ),
        )


def _input_line(known: Known, rank: int) -> Location | None:
    """The line that waits for the loader: where the rank was seen most often."""
    lines = [line for line in known.ranks[rank].lines if line.below == "input"]
    if not lines:
        return None
    most = max(lines, key=lambda line: line.count)
    return known.ranks[rank].location(Frame(most.function, most.file, most.line))


def _slow_input(
    known: Known, waits: dict[int, Inputs], found: Arrivals | None
) -> Iterator[Proposal]:
    if len(waits) < 2 or found is None or found.span_ns < SHORTEST_NS:
        return
    for rank, wait in waits.items():
        others = [w.ms for r, w in waits.items() if r != rank]
        usual = median(others)
        excess = wait.ms - usual
        if _may_starve_unseen(waits, rank):
            continue
        if wait.making is not None and wait.making < KEEPS_UP:
            continue  # its loader makes batches fast enough; they came late for another reason
        if (
            wait.share >= STARVED / 2
            and wait.ms >= EXCESS * usual
            and excess >= FLOOR_MS
            and found.share(rank) >= COST
        ):
            yield propose(
                known,
                Order.SLOW,
                Cause.SLOW_INPUT,
                [rank],
                status=Status.SLOW,
                confidence=min(0.97, 0.6 + found.share(rank)),
                summary=f"Rank {rank} gets its input {wait.ms / max(usual, 1e-3):.1f} times as "
                "slowly as its peers, which wait for it.",
                evidence=[
                    Evidence("progress", r, f"waited {w.ms:.1f} ms per batch")
                    for r, w in sorted(waits.items())
                ]
                + [_lag(found, rank)],
                location=_input_line(known, rank),
                effect=Effect(
                    section="dataloader",
                    ms_per_step=round(excess, 3),
                    share_of_step=round(excess * wait.count * 1e6 / wait.span_ns, 4),
                ),
            )


def _may_starve_unseen(waits: dict[int, Inputs], rank: int) -> bool:
    """Whether another rank's loader may be as slow, hidden by the time its rank waits anyway."""
    mine = waits[rank].making
    others = [w for r, w in waits.items() if r != rank]
    if mine is not None and all(w.making is not None for w in others):
        return mine < EXCESS * median(w.making or 0.0 for w in others)
    return any(w.making is None and w.share >= HIDDEN for w in others)


def _lag(found: Arrivals, rank: int) -> Evidence:
    return Evidence(
        "flight_recorder",
        rank,
        f"was last into {found.last[rank]} of {found.operations} operations; its peers lost "
        f"{found.lost_ns[rank] / 1e6:.0f} ms to it, {found.share(rank):.0%} of the time",
    )


def _work_ns(view: RankView) -> int | None:
    """Processor time of the rank's own work since its first operation."""
    progress = view.progress
    if progress is None:
        return None
    if progress.cpu_first_ns is not None and progress.cpu_last_ns is not None:
        return progress.cpu_last_ns - progress.cpu_first_ns
    return None


def _heaviest_section(known: Known, rank: int) -> tuple[str, float] | None:
    """The section in which the rank used most processor time beyond its peers, and how much."""
    view = known.ranks[rank]
    if view.progress is None:
        return None
    best: tuple[str, float] | None = None
    for total in view.progress.section_totals:
        if total.kind or not total.count:
            continue
        peers = [
            t.cpu_ns / t.count
            for r, v in known.ranks.items()
            if r != rank and v.progress
            for t in v.progress.section_totals
            if t.section == total.section and t.count
        ]
        if not peers:
            continue
        excess = total.cpu_ns / total.count - median(peers)
        if excess > 0 and (best is None or excess > best[1]):
            best = total.section, excess
    return best


def _slow_elsewhere(
    known: Known, found: Arrivals, named: set[int], steps: int
) -> Iterator[Proposal]:
    """A rank that its peers always wait for, seen at a line of its own, without computing more."""
    for rank, view in known.ranks.items():
        if (
            rank in named
            or found.share(rank) < LATE
            or found.last[rank] < ALWAYS * found.operations
        ):
            continue
        line = _busiest_line(known, rank)
        if line is None:
            continue
        own = _share_of_line(view, line)
        peers = [_share_of_line(v, line) for r, v in known.ranks.items() if r != rank]
        if own < OWN_LINE or not peers or own < 3 * max(peers):
            continue
        location = view.location(line)
        lost_ms = found.lost_ns[rank] / steps / 1e6
        yield propose(
            known,
            Order.SLOW,
            Cause.SLOW_COMPUTE,
            [rank],
            status=Status.SLOW,
            confidence=0.7,
            summary=f"Rank {rank} is always last: it spends {own:.0%} of its time"
            f"{name_line(location)}, where its peers spend next to none; it does not compute more "
            "than they do, so it waits for something there.",
            evidence=[
                _lag(found, rank),
                Evidence("progress", rank, f"{own:.0%} of its samples{name_line(location)}"),
            ],
            location=location,
            effect=Effect(
                section=None,
                ms_per_step=round(lost_ms, 3),
                share_of_step=round(found.share(rank), 4),
            ),
        )


def _share_of_line(view: RankView, frame: Frame) -> float:
    """Share of the rank's samples whose innermost user line is the frame's."""
    total = sum(line.count for line in view.lines)
    here = sum(
        line.count
        for line in view.lines
        if (line.file, line.function, line.line) == (frame.file, frame.function, frame.line)
        and line.below != "communication"
    )
    return here / total if total else 0.0


def _busiest_line(known: Known, rank: int) -> Frame | None:
    """The line that the rank was seen at most often beyond its peers, calls to them aside."""
    counts: dict[int, Counter[Frame]] = {}
    for r, view in known.ranks.items():
        counts[r] = Counter()
        for line in view.lines:
            if line.below != "communication":
                counts[r][Frame(line.function, line.file, line.line)] += line.count
    peers = [r for r in counts if r != rank]
    excess = {
        frame: seen - median(counts[r][frame] for r in peers)
        for frame, seen in counts[rank].items()
        if peers
    }
    best = max(excess, key=lambda frame: excess[frame], default=None)
    return best if best is not None and excess[best] > 0 else None


def _slow_compute(known: Known, found: Arrivals | None, named: set[int]) -> Iterator[Proposal]:
    if found is None or found.operations < FEWEST or found.span_ns < SHORTEST_NS:
        return
    work = {r: w for r, v in known.ranks.items() if (w := _work_ns(v)) is not None}
    if len(work) < 2 or len(work) < len(known.ranks):
        return
    steps = _steps(known, found)
    culprits = []
    for rank, mine in work.items():
        usual = median(w for r, w in work.items() if r != rank)
        excess = mine - usual
        if (
            rank not in named
            and mine >= EXCESS * usual
            and excess / found.span_ns >= WORK
            and excess >= LEAST_NS
            and excess / steps / 1e6 >= FLOOR_MS
            and found.share(rank) >= COST
        ):
            culprits.append((rank, excess, usual))
    if not culprits:
        yield from _slow_elsewhere(known, found, named, steps)
        return
    rank, excess, usual = max(culprits, key=lambda c: c[1])
    line = _busiest_line(known, rank)
    ranks = [c[0] for c in culprits]
    section = _heaviest_section(known, rank)
    yield propose(
        known,
        Order.SLOW,
        Cause.SLOW_COMPUTE,
        ranks,
        status=Status.SLOW,
        confidence=min(0.97, 0.6 + sum(found.share(r) for r in ranks)),
        summary=f"{name_ranks(ranks).capitalize()} computed {work[rank] / max(usual, 1):.1f} "
        "times as long as its peers, which wait for it.",
        evidence=[
            Evidence("progress", r, f"used {w / steps / 1e6:.1f} ms of processor time a step")
            for r, w in sorted(work.items())
        ]
        + [_lag(found, r) for r in ranks],
        location=known.ranks[rank].location(line) if line else None,
        effect=Effect(
            section=section[0] if section else None,
            ms_per_step=round((section[1] if section else excess / steps) / 1e6, 3),
            share_of_step=round(excess / found.span_ns, 4),
        ),
    )
