"""From a folder of dumps to the wait-for graph, however many ranks there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hanglab.analyzer.flight_recorder import load_folder, map_folder
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.discovery import find_candidates
from hanglab.analyzer.graph.builder import build_wait_for_graph, graph_of_summaries
from hanglab.analyzer.graph.thresholds import SMALL
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.call_lookup import DumpSource
from hanglab.analyzer.matching.merging import merge_all
from hanglab.analyzer.matching.summary import summarise
from hanglab.analyzer.verdict import Unusable


@dataclass
class _Folder(DumpSource):
    """Reads single ranks of a folder once more."""

    path: Path

    def __call__(self, rank: int) -> RankDump | None:
        return self.many([rank]).get(rank)

    def many(self, ranks: Collection[int]) -> dict[int, RankDump]:
        return {dump.rank: dump for dump in load_folder(self.path, ranks=set(ranks)).dumps}


def wait_for_graph_of_folder(
    path: Path, *, expected: Sequence[int] | None = None, workers: int | None = None
) -> tuple[WaitForGraph, list[Unusable]]:
    """The wait-for graph of the dumps below ``path``, and the files of no or of partial use.

    Few dumps are kept in memory.  Many are boiled down where they are loaded,
    in ``workers`` processes (default: the cores that may be used), and only the
    ranks that matter are read a second time.  Raises NotADirectoryError.
    """
    path = Path(path)
    if path.is_dir() and sum(1 for _ in find_candidates(path)) <= SMALL:
        loaded = load_folder(path, workers=workers)
        return build_wait_for_graph(loaded.dumps, expected=expected), loaded.unusable
    mapped = map_folder(path, summarise, workers=workers)
    merged = merge_all(mapped.results)
    mapped.results.clear()
    return graph_of_summaries(merged, _Folder(path), expected=expected), mapped.unusable
