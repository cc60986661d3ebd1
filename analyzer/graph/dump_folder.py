"""From a folder of dumps to wait-for graphs, however many ranks there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hanglab.analyzer.flight_recorder import load_folder
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.discovery import find_candidates
from hanglab.analyzer.flight_recorder.loading import identity
from hanglab.analyzer.graph.builder import graph_of_summaries
from hanglab.analyzer.graph.progressing_ranks import find_undated, longest_wait_ns
from hanglab.analyzer.graph.thresholds import SMALL
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.call_lookup import DumpsInMemory, DumpSource
from hanglab.analyzer.matching.generations import (
    align_generations,
    merge_dumps,
    rename_groups,
    split_generations,
    summarise_generations,
)
from hanglab.analyzer.matching.merging import MergedSummaries, merge_all
from hanglab.analyzer.verdict import Unusable
from hanglab.analyzer.worlds.folder import FolderWorld, read_worlds

T = TypeVar("T")


@dataclass
class _Folder(DumpSource):
    """Reads single ranks of a folder, or of some of its files, once more."""

    path: Path
    names: frozenset[str] | None
    #: By rank, see :func:`align_generations`.
    group_names: dict[int, dict[str, str]]

    def __call__(self, rank: int) -> RankDump | None:
        return self.many([rank]).get(rank)

    def many(self, ranks: Collection[int]) -> dict[int, RankDump]:
        loaded = load_folder(self.path, ranks=set(ranks), names=self.names)
        for dump in loaded.dumps:
            split_generations(dump)
            rename_groups(dump, self.group_names.get(dump.rank, {}))
        return {dump.rank: dump for dump in loaded.dumps}


@dataclass
class WorldGraph:
    """The wait-for graph of one world of a folder: of one attempt of one job."""

    graph: WaitForGraph
    #: Files of no or of partial use.
    unusable: list[Unusable]
    #: Names of its files with ``#`` for the rank; "" where the folder holds nothing else.
    name: str = ""
    #: Files of the folder that belong to other worlds.
    set_aside: list[Unusable] = field(default_factory=list)
    #: A later attempt of its job lies beside it.
    restarted: bool = False


def wait_for_graphs_of_folder(
    path: Path, *, expected: Sequence[int] | None = None, workers: int | None = None
) -> list[WorldGraph]:
    """The wait-for graph of each world below ``path``, the largest first.

    Few dumps are kept in memory.  Many are boiled down where they are loaded,
    in ``workers`` processes (default: the cores that may be used), and only the
    ranks that matter are read a second time.  Raises NotADirectoryError.
    """
    path = Path(path)
    if path.is_dir() and sum(1 for _ in find_candidates(path)) <= SMALL:
        return [_of_dumps(world, expected) for world in read_worlds(path, identity)]
    found = []
    for world in read_worlds(path, summarise_generations, workers=workers, keep=True):
        merged = world.mapped.united(merge_all)
        files = frozenset(world.mapped.files) if world.name else None
        source = _Folder(path, files, align_generations(merged))
        found.append(_world_graph(world, merged, source, expected))
    return found


def wait_for_graph_of_folder(
    path: Path, *, expected: Sequence[int] | None = None, workers: int | None = None
) -> tuple[WaitForGraph, list[Unusable]]:
    """The wait-for graph of the largest world, see :func:`wait_for_graphs_of_folder`."""
    world = wait_for_graphs_of_folder(path, expected=expected, workers=workers)[0]
    return world.graph, world.unusable


def _of_dumps(world: FolderWorld[RankDump], expected: Sequence[int] | None) -> WorldGraph:
    dumps = {dump.rank: dump for dump in world.mapped.results}
    merged = merge_dumps(dumps.values())
    return _world_graph(world, merged, DumpsInMemory(dumps), expected)


def _world_graph(
    world: FolderWorld[T],
    merged: MergedSummaries,
    source: DumpSource,
    expected: Sequence[int] | None,
) -> WorldGraph:
    moving: set[int] = set()
    graph = graph_of_summaries(merged, source, expected=expected)
    while more := find_undated(graph, merged, source):
        # Without them, waiting ends elsewhere.
        moving.update(more)
        graph = graph_of_summaries(merged, source, expected=expected, progressing=moving)
    for sink in graph.sinks:
        if sink.outside and not graph.unfinished.get(sink.rank) and sink.rank in merged.ranks:
            activity = merged.ranks[sink.rank].activity
            sink.paused_s = activity.short_pause_s(longest_wait_ns(merged))
    return WorldGraph(graph, world.mapped.unusable, world.name, world.set_aside, world.restarted)
