"""Arrival lag: who enters matched operations last, by how much, and by whose own doing.

Under one sequence number the last to enter keeps the others waiting.  It may
itself have been kept waiting before: so its *own time* counts, from the moment
at which the operation before let everybody go until it enters the next, less
what it spent inside communication.  Ranks of one group that had the same part
in point-to-point traffic are compared, the median of the peers being what is
usual; stages of a pipeline have different parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.facts.aligned_collectives import AlignedCollectives, Bool, Times, timeline
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, once
from hanglab.analyzer.facts.host_clocks import HostClocks, host_clocks, on_common_clocks
from hanglab.analyzer.facts.thresholds import ALIGNED_CLOCK_NS, EXACT_MEDIAN_MEMBERS, PARTS
from hanglab.recorder.case.operations import op_of_method
from hanglab.recorder.slowness.job_window import Lateness
from hanglab.recorder.slowness.thresholds import STRETCH_PART


@dataclass
class GroupLag:
    """Times of one group's members before each operation that they waited for.

    n operations, m comparable members; times are nanoseconds since the
    timeline's origin.  ``own[i, j]`` is member j's own time before operation i,
    which began at ``base[i, j]``; ``excess`` is what it exceeds the median of
    the other members' by; ``lost[i]`` is what they lost by ``last[i]``, the
    number of the member that entered last and held them up itself, -1 if
    nobody did.
    """

    group: str
    members: list[int]
    base: Times
    entered: Times
    own: Times
    excess: Times
    lost: Times
    last: npt.NDArray[np.int64]
    #: What each member alone would have cost the median of its peers, last or not, shape (n, m).
    late: Times


@dataclass
class Arrivals:
    """Arrivals of all ranks on one clock; times in nanoseconds."""

    #: Operations that were compared.
    operations: int
    #: Time from the first of them to the last.
    span_ns: int
    #: Wall time of the reference host at which ``begin`` and all other times are 0.
    origin_ns: int
    begin_ns: float
    #: Stretches of work between operations, of the rank with fewest: operations in a row are one.
    stretches: int
    #: By rank; of those alone that were compared.
    lateness: dict[int, Lateness]
    group_lags: list[GroupLag] = field(default_factory=list)
    clocks: HostClocks = field(default_factory=lambda: HostClocks({}))

    def share(self, rank: int) -> float:
        """Share of the observed time that the rank's peers lost to it, again and again."""
        late = self.lateness.get(rank)
        return late.share if late is not None else 0.0

    def own(self, rank: int) -> OwnTime:
        """The rank's own time as intervals, over all groups."""
        parts = [
            np.stack([s.base[:, j], s.entered[:, j]], axis=1)
            for s in self.group_lags
            for j, member in enumerate(s.members)
            if member == rank
        ]
        return OwnTime(np.concatenate(parts) if parts else np.zeros((0, 2)))

    def local(self, rank: int, wall_ns: Iterable[int]) -> Times:
        """Wall times of the rank's host on the common clock."""
        times = np.asarray(list(wall_ns), dtype=np.int64) - self.origin_ns
        return self.clocks.align(rank, times.astype(np.float64))


class OwnTime:
    """Disjoint intervals; tells how much of something fell into them."""

    def __init__(self, intervals: Times) -> None:
        order = np.argsort(intervals[:, 0], kind="stable")
        begins, ends = intervals[order, 0], intervals[order, 1]
        ends = np.maximum.accumulate(ends) if len(ends) else ends
        if len(begins) > 1:
            begins[1:] = np.maximum(begins[1:], ends[:-1])
        self._edges = np.stack([begins, np.maximum(begins, ends)], axis=1).reshape(-1)
        steps = np.diff(self._edges, prepend=self._edges[:1])
        steps[::2] = 0.0
        self._sums = np.cumsum(steps)

    def before(self, times: Times) -> Times:
        """Own time up to each of the times."""
        if not len(self._edges):
            return np.zeros(len(times))
        found: Times = np.interp(times, self._edges, self._sums)
        return found

    def overlap(self, begins: Times, ends: Times) -> Times:
        """Own time within each [begin, end]."""
        within: Times = self.before(ends) - self.before(begins)
        return within


@once
def arrivals(facts: CaseFacts) -> Arrivals | None:
    """Arrivals over all groups of at least two ranks; None without a common operation."""
    progress = {r: v.progress for r, v in facts.ranks.items() if v.progress is not None}
    times = timeline(facts.dumps, progress)
    if times is None:
        return None
    clocks = host_clocks(times.collectives, {r: v.host for r, v in facts.ranks.items()})
    collectives = on_common_clocks(times, clocks)
    blocked = {
        rank: _blocked(view, times.origin_ns, clocks)
        for rank, view in facts.ranks.items()
        if rank in {r for m in collectives for r in m.members}
    }
    parts = {rank: message_part(view) for rank, view in facts.ranks.items()}
    group_lags = list(_group_lags(collectives, blocked, parts))
    return _sum_up(group_lags, times.origin_ns, clocks)


def _blocked(view: RankView, origin_ns: int, clocks: HostClocks) -> OwnTime:
    """Time that the rank spent in calls to its peers and in waits for them."""
    spans: list[tuple[int | None, int | None]] = []
    if view.progress is not None:
        for o in view.progress.operations:
            spans.append((o.entered_ns, o.returned_ns))
            spans.append((o.wait_entered_ns, o.wait_returned_ns))
    ended = [(a - origin_ns, b - origin_ns) for a, b in spans if a and b and b > a]
    intervals = np.array(ended, dtype=np.float64).reshape(-1, 2)
    return OwnTime(np.stack([clocks.align(view.rank, intervals[:, i]) for i in (0, 1)], axis=1))


def message_part(view: RankView) -> tuple[str, int, int]:
    """The rank's part in point-to-point traffic: what it began with, and how much of each."""
    if view.progress is None:
        return "", 0, 0
    specs = (op_of_method(o.method) for o in view.progress.operations)
    kinds = [spec.half for spec in specs if spec is not None and spec.p2p]
    # The ring may have lost the oldest: only the proportion is comparable.
    sends = kinds.count("send")
    return (kinds[0] if kinds else ""), round(8 * sends / max(1, len(kinds))), bool(kinds)


def _group_lags(
    collectives: Sequence[AlignedCollectives],
    blocked: Mapping[int, OwnTime],
    parts: Mapping[int, tuple[str, int, int]],
) -> Iterable[GroupLag]:
    chained = [m.chained | _overlapping(m) for m in collectives]
    bases = _bases(collectives, chained)
    for aligned, base, chain in zip(collectives, bases, chained, strict=True):
        use = ~chain & ~np.isnan(base).any(axis=1)
        if not use.any():
            continue
        base, entered = base[use], aligned.entered[use]
        away = np.stack(
            [
                blocked[rank].overlap(base[:, j], entered[:, j])
                if rank in blocked
                else np.zeros(len(base))
                for j, rank in enumerate(aligned.members)
            ],
            axis=1,
        )
        own = np.maximum(entered - base - away, 0.0)
        for alike in _alike(aligned.members, parts):
            yield _compare(aligned, alike, base, entered, own)


def _alike(members: Sequence[int], parts: Mapping[int, tuple[str, int, int]]) -> list[list[int]]:
    """Places of members that can be compared with each other."""
    by_part: dict[object, list[int]] = {}
    for place, rank in enumerate(members):
        by_part.setdefault(parts.get(rank), []).append(place)
    return [places for places in by_part.values() if len(places) > 1]


def _overlapping(aligned: AlignedCollectives) -> Bool:
    """Operations after which a member entered the next before all had entered this one."""
    chained = np.zeros(len(aligned.entered), dtype=np.bool_)
    if len(chained) > 1:
        chained[:-1] = aligned.entered[1:].min(axis=1) < aligned.release[:-1] - ALIGNED_CLOCK_NS
    return chained


def _bases(collectives: Sequence[AlignedCollectives], chained: Sequence[Bool]) -> list[Times]:
    """Per collective and member: when the last one that the member waited for let it go.

    NaN before its first.
    """
    ranks = sorted({rank for aligned in collectives for rank in aligned.members})
    place = {rank: i for i, rank in enumerate(ranks)}
    base = np.full(len(ranks), np.nan)
    pending = np.full(len(ranks), np.nan)
    result = [np.full(aligned.entered.shape, np.nan) for aligned in collectives]
    columns = [np.array([place[rank] for rank in aligned.members]) for aligned in collectives]
    releases = [aligned.release for aligned in collectives]
    order = sorted(
        (released, number, row)
        for number, release in enumerate(releases)
        for row, released in enumerate(release.tolist())
    )
    for released, number, row in order:
        mine = columns[number]
        result[number][row] = base[mine]
        if chained[number][row]:
            pending[mine] = released
        else:
            base[mine] = released
            pending[mine] = np.nan
    return result


def _compare(
    aligned: AlignedCollectives, alike: list[int], base: Times, entered: Times, own: Times
) -> GroupLag:
    own = own[:, alike]
    excess = own - _peers(own)
    latest = entered.argmax(axis=1)
    rows = np.arange(len(entered))
    mine = np.full(len(aligned.members), -1)
    mine[alike] = np.arange(len(alike))
    last = mine[latest]
    arrived = entered[:, alike]
    lag = arrived - _peers(arrived)
    lost = np.where(last >= 0, np.minimum(lag[rows, last], excess[rows, last]), 0.0)
    lost = np.maximum(lost, 0.0)
    return GroupLag(
        group=aligned.group,
        members=[aligned.members[i] for i in alike],
        base=base[:, alike],
        entered=arrived,
        own=own,
        excess=excess,
        lost=lost,
        last=np.where(lost > 0, last, -1),
        late=np.maximum(np.minimum(lag, excess), 0.0),
    )


def _peers(values: Times) -> Times:
    """For each member the median over the others, shape (n, m) as ``values``."""
    members = values.shape[1]
    if members > EXACT_MEDIAN_MEMBERS:
        return np.median(values, axis=1, keepdims=True).repeat(members, axis=1)
    columns = [np.median(np.delete(values, j, axis=1), axis=1) for j in range(members)]
    return np.stack(columns, axis=1)


def _sum_up(group_lags: list[GroupLag], origin_ns: int, clocks: HostClocks) -> Arrivals | None:
    if not group_lags:
        return None
    begin = min(float(s.base.min()) for s in group_lags)
    end = max(float(s.entered.max()) for s in group_lags)
    span_ns = int(end - begin)
    ranks = sorted({r for s in group_lags for r in s.members})
    edges = np.linspace(begin, end, PARTS + 1)
    lateness = {rank: _lateness(group_lags, rank, edges) for rank in ranks}
    return Arrivals(
        operations=sum(len(s.own) for s in group_lags),
        span_ns=span_ns,
        origin_ns=origin_ns,
        begin_ns=begin,
        stretches=_stretches(group_lags),
        lateness=lateness,
        group_lags=group_lags,
        clocks=clocks,
    )


def _stretches(group_lags: list[GroupLag]) -> int:
    """Operations before which some member of the group worked, of the rank that had the fewest.

    Without marks of its steps this is what a job repeats: several operations in a row have next
    to no work between them.  As much as the member itself does on average: what stalls one of them
    in every tenth step is no measure of the steps of all.
    """
    usual = _usual_work(group_lags)
    worked = Counter[int]()
    for lag in group_lags:
        mine = np.array([usual[member] for member in lag.members])
        least = np.where(mine >= STRETCH_PART * np.median(mine), STRETCH_PART * mine, np.inf)
        count = int((lag.own >= least).any(axis=1).sum())
        worked.update(dict.fromkeys(lag.members, count))
    return max(1, min(worked.values()))


def _usual_work(group_lags: list[GroupLag]) -> dict[int, float]:
    """Nanoseconds that each rank works before an operation on average."""
    parts: dict[int, list[Times]] = {}
    for lag in group_lags:
        for place, member in enumerate(lag.members):
            parts.setdefault(member, []).append(lag.own[:, place])
    usual = {}
    for member, found in parts.items():
        own = np.concatenate(found)
        # Once is not again and again.
        usual[member] = float((own.sum() - own.max()) / (len(own) - 1) if len(own) > 1 else own[0])
    return usual


def _lateness(group_lags: list[GroupLag], rank: int, edges: Times) -> Lateness:
    places = [(s, s.members.index(rank)) for s in group_lags if rank in s.members]
    excess = np.concatenate([s.excess[:, j] for s, j in places])
    entered = np.concatenate([s.entered[:, j] for s, j in places])
    lost = np.concatenate([s.lost[s.last == j] for s, j in places])
    kept = np.sort(excess)[:-1] if len(excess) > 1 else excess
    error = float(kept.std()) / max(1.0, np.sqrt(len(kept))) + 1.0
    return Lateness(
        span_ns=int(edges[-1] - edges[0]),
        compared=len(excess),
        last=len(lost),
        lost_ns=int(lost.sum()),
        longest_ns=int(lost.max(initial=0.0)),
        late_ns=sum(int(s.late[:, j].sum()) for s, j in places),
        excess_ns=float(kept.sum()),
        certainty=float(kept.mean()) / error,
        excess_parts=np.histogram(entered, edges, weights=excess)[0].tolist(),
    )
