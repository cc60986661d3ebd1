"""Reading on other machines: what a cluster has to do, and which one reads now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from hanglab.analyzer.flight_recorder.worker_pool import Limits


class Cluster(Protocol):
    """Reads dumps in place of this machine's processes.  Functions must be ones that pickle."""

    def run(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        limits: Callable[[Any], Limits],
        /,
    ) -> Iterator[tuple[int, Any]]:
        """Pairs of an item's number and its result, or Lost; every item once."""

    def keep(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        limits: Callable[[Any], Limits],
        shown: Callable[[Any], Any],
        /,
    ) -> Iterator[tuple[int, Any]]:
        """Like ``run``, but results stay there; what ``shown`` leaves of each comes."""

    def unite(self, unite: Callable[[list[Any]], Any], numbers: Sequence[int], /) -> Any:
        """Unite the results with these numbers, of those that were kept last.

        It takes results and what it made of others, in any order and grouping.
        """


#: The latest is the one that reads.
_CLUSTERS: list[Cluster] = []


@contextmanager
def read_elsewhere(cluster: Cluster) -> Iterator[None]:
    """Has ``cluster`` read whatever this process loads until the context ends."""
    _CLUSTERS.append(cluster)
    try:
        yield
    finally:
        _CLUSTERS.remove(cluster)


def cluster_in_use() -> Cluster | None:
    return _CLUSTERS[-1] if _CLUSTERS else None
