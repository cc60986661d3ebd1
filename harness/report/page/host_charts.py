"""Charts of each host: processor, pressure, memory, disks, sockets, GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.facts.job_clock import ahead_of_job
from hanglab.harness.report.page.records import Chart, HostCharts, Line
from hanglab.harness.report.rank_ranges import ranges

#: Lines of a chart, and hosts with charts of their own; culprits' hosts come first.
MOST_LINES = 12
MOST_HOSTS = 8
#: Points of a line: a job of hours has a sample each second.
MOST_POINTS = 600
_Series = dict[str, list[tuple[int, float]]]


def host_charts(
    facts: CaseFacts, culprits: Iterable[int], most_hosts: int = MOST_HOSTS
) -> list[HostCharts]:
    """Charts of the hosts; empty for a bare folder of dumps."""
    first = [facts.ranks[rank].host for rank in culprits if rank in facts.ranks]
    names = list(dict.fromkeys([*(n for n in first if n in facts.hosts), *sorted(facts.hosts)]))
    found = []
    for name in names[:most_hosts]:
        host = facts.hosts[name]
        views = [view for view in facts.ranks.values() if view.host == name]
        charts = [chart for chart in _charts(host, views) if chart is not None]
        if charts:
            ranks = ranges(view.rank for view in views)
            begin = _begin(host, views) - ahead_of_job(facts.job, name)
            found.append(HostCharts(host=name, ranks=ranks, begin_wall_ns=begin, charts=charts))
    return found


def _charts(host: HostView, views: list[RankView]) -> Iterable[Chart | None]:
    begin = _begin(host, views)
    yield _chart("Processor used by each rank", "cores", _processor(views), begin)
    yield _chart("Tasks that waited (pressure)", "% of the time", _pressure(host), begin)
    yield _chart("Memory available", "GiB", _memory(host), begin)
    yield _chart("Room on file systems", "GiB", _disks(host), begin)
    yield _chart("Bytes sent and not acknowledged", "KiB", _sockets(views), begin)
    yield _chart("GPU utilization", "%", _gpus(host, "utilization"), begin)
    yield _chart("GPU memory", "GiB", _gpus(host, "memory_used_bytes"), begin)
    yield _chart("GPU power", "W", _gpus(host, "power_w"), begin)


def _begin(host: HostView, views: list[RankView]) -> int:
    times = [host.samples[0].at.wall_ns] if host.samples else []
    times += [v.progress.usage[0].at_ns for v in views if v.progress and v.progress.usage]
    times += [view.connections[0].at.wall_ns for view in views if view.connections]
    return min(times, default=0)


def _chart(title: str, unit: str, series: _Series, begin: int) -> Chart | None:
    kept = {name: points for name, points in series.items() if len(points) > 1}
    if not kept:
        return None
    # Of many lines those that vary most tell most.
    order = sorted(kept, key=lambda name: -_spread(kept[name]))[:MOST_LINES]
    return Chart(
        title=title,
        unit=unit,
        lines=[_line(name, kept[name], begin) for name in sorted(order, key=list(kept).index)],
    )


def _spread(points: list[tuple[int, float]]) -> float:
    values = [value for _, value in points]
    return max(values) - min(values)


def _line(name: str, points: list[tuple[int, float]], begin: int) -> Line:
    thinned = points[:: max(1, -(-len(points) // MOST_POINTS))]
    return Line(
        name=name,
        x=[round((at - begin) / 1e9, 3) for at, _ in thinned],
        y=[round(value, 3) for _, value in thinned],
    )


def _processor(views: list[RankView]) -> _Series:
    """Cores in use between two looks, of the whole process."""
    found: _Series = {}
    for view in views:
        usage = view.progress.usage if view.progress is not None else []
        points = [
            (after.at_ns, (after.cpu_ns - before.cpu_ns) / (after.at_ns - before.at_ns))
            for before, after in pairwise(usage)
            if after.at_ns > before.at_ns
        ]
        found[f"rank {view.rank}"] = points
    return found


def _pressure(host: HostView) -> _Series:
    found: _Series = defaultdict(list)
    for sample in host.samples:
        for one in sample.pressure:
            name = f"{one.resource} {one.group}".strip()
            found[name].append((sample.at.wall_ns, one.some_percent))
    return found


def _memory(host: HostView) -> _Series:
    found: _Series = defaultdict(list)
    for sample in host.samples:
        if sample.memory_available_bytes is not None:
            found["host"].append((sample.at.wall_ns, sample.memory_available_bytes / 2**30))
        for group in sample.memory_groups:
            limit = group.limit_bytes or group.high_bytes
            if limit and group.used_bytes is not None:
                room = (limit - group.used_bytes) / 2**30
                found[f"group of ranks {ranges(group.ranks)}"].append((sample.at.wall_ns, room))
    return found


def _disks(host: HostView) -> _Series:
    found: _Series = defaultdict(list)
    for sample in host.samples:
        for space in sample.spaces:
            if space.free_bytes is not None:
                found[space.path].append((sample.at.wall_ns, space.free_bytes / 2**30))
    return found


def _sockets(views: list[RankView]) -> _Series:
    found: _Series = defaultdict(list)
    for view in views:
        for sample in view.connections:
            queued = sum(c.send_queue for c in sample.connections if c.state != "LISTEN")
            found[f"rank {view.rank}"].append((sample.at.wall_ns, queued / 1024))
    return found


def _gpus(host: HostView, field: str) -> _Series:
    scale = 2**30 if field.endswith("bytes") else 1
    found: _Series = defaultdict(list)
    for sample in host.samples:
        for gpu in sample.gpus:
            value = getattr(gpu, field)
            if value is not None:
                found[f"GPU {gpu.index}"].append((sample.at.wall_ns, value / scale))
    return found
