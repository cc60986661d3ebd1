"""Dumps read by Dask's workers, and what was made of them united there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hanglab.analyzer.flight_recorder.worker_pool import Limits, Lost
from hanglab.harness.cluster.batches import (
    Batch,
    do_batch,
    make_batches,
    shown_of_batch,
    unite_chosen,
)
from hanglab.harness.cluster.errors import ClusterError
from hanglab.harness.errors import HanglabError

if TYPE_CHECKING:
    from distributed import Client, Future

Items = Sequence[Any]
Answers = Iterator[tuple[int, Any]]

#: Batches that each worker has in hand, so that it never waits for the next one.
_AHEAD = 2
#: Parts that one task unites: 64 workers' are one in two rounds.
_UNITED_AT_ONCE = 8


@dataclass
class DaskPool:
    """A cluster for :func:`hanglab.analyzer.flight_recorder.elsewhere.read_elsewhere`.

    Workers may not see this machine's files: ``carry`` makes of an item, here, one that they can
    read; ``bring`` makes such items of a batch where it is read.
    """

    client: Client
    workers: int
    carry: Callable[[Any], Any] | None = None
    bring: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    #: Batches whose results stayed with the workers: the items' numbers, and the results.
    _kept: list[tuple[frozenset[int], Future[Any]]] = field(default_factory=list)

    def run(
        self, function: Callable[[Any], Any], items: Items, limits: Callable[[Any], Limits]
    ) -> Answers:
        """Pairs of an item's number and its result, as they come; every item once.

        A worker that is lost costs its batches again, by others.  Raises ClusterError.
        """
        return self._answers(items, limits, lambda batch: self._read(function, batch))

    def keep(
        self,
        function: Callable[[Any], Any],
        items: Items,
        limits: Callable[[Any], Limits],
        shown: Callable[[Any], Any],
    ) -> Answers:
        """Like :meth:`run`, but what comes is what ``shown`` leaves of each result.

        The results are for :meth:`unite`, until others are kept.
        """
        self._kept.clear()

        def read(batch: Batch[Any]) -> Future[Any]:
            made = self._read(function, batch)
            self._kept.append((frozenset(one.number for one in batch), made))
            return self._submit(shown_of_batch, shown, made)

        return self._answers(items, limits, read)

    def unite(self, unite: Callable[[list[Any]], Any], numbers: Sequence[int]) -> Any:
        """Unite the kept results with these numbers.  Raises ClusterError."""
        wanted = frozenset(numbers)
        parts = [
            self._submit(unite_chosen, unite, made, there & wanted)
            for there, made in self._kept
            if there & wanted
        ]
        while len(parts) > 1:
            parts = [
                self._submit(unite, parts[first : first + _UNITED_AT_ONCE])
                for first in range(0, len(parts), _UNITED_AT_ONCE)
            ]
        return _result(parts[0])

    def _answers(
        self,
        items: Items,
        limits: Callable[[Any], Limits],
        read: Callable[[Batch[Any]], Future[Any]],
    ) -> Answers:
        from distributed import as_completed

        batches = make_batches(items, limits, self.workers)
        under_way = as_completed(loop=self.client.loop, raise_errors=False)
        for _, batch in zip(range(self.workers * _AHEAD), batches, strict=False):
            under_way.add(read(batch))
        for future in under_way:
            found: list[tuple[int, Any | Lost]] = _result(future)
            future.release()
            yield from found
            further = next(batches, None)
            if further is not None:
                under_way.add(read(further))

    def _read(self, function: Callable[[Any], Any], batch: Batch[Any]) -> Future[Any]:
        if self.carry is not None:
            batch = [replace(one, item=self.carry(one.item)) for one in batch]
        return self._submit(do_batch, function, batch, self.bring)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        from distributed.client import ClosedClientError

        try:
            return self.client.submit(function, *arguments, pure=False)
        except (ClosedClientError, OSError) as error:
            raise _lost(error) from error


def _result(future: Future[Any]) -> Any:
    from distributed.scheduler import KilledWorker

    try:
        return future.result()
    except HanglabError:  # a worker could not fetch what it was to read
        raise
    except (CancelledError, KilledWorker, OSError, RuntimeError) as error:
        raise _lost(error) from error


def _lost(error: BaseException) -> ClusterError:
    words = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return ClusterError(f"The cluster was lost in the middle: {words}.")
