"""A pool whose children are Dask's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from hanglab.analyzer.flight_recorder.worker_pool import Limits, Lost
from hanglab.harness.cluster.batches import Batch, do_batch, make_batches
from hanglab.harness.cluster.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Future

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Batches that each worker has in hand, so that it never waits for the next one.
_AHEAD = 2


@dataclass
class DaskPool:
    """``carry`` makes of an item one that workers can read who do not see this machine's files."""

    client: Client
    workers: int
    carry: Callable[[Any], Any] | None = None

    def __call__(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        limits: Callable[[Item], Limits],
    ) -> Iterator[tuple[int, Result | Lost]]:
        """Pairs of an item's number and its result, as they come; every item once.

        A worker that is lost costs its batches again, by others.  Raises ClusterError.
        """
        from distributed import as_completed

        batches = make_batches(items, limits, self.workers)
        under_way = as_completed(loop=self.client.loop, raise_errors=False)
        for _, batch in zip(range(self.workers * _AHEAD), batches, strict=False):
            under_way.add(self._submit(function, batch))
        for future in under_way:
            yield from self._result(future)
            further = next(batches, None)
            if further is not None:
                under_way.add(self._submit(function, further))

    def _submit(self, function: Callable[[Item], Result], batch: Batch[Item]) -> Future[Any]:
        if self.carry is not None:
            batch = [replace(one, item=self.carry(one.item)) for one in batch]
        from distributed.client import ClosedClientError

        try:
            return self.client.submit(do_batch, function, batch, pure=False)
        except (ClosedClientError, OSError) as error:
            raise _lost(error) from error

    def _result(self, future: Future[Any]) -> list[tuple[int, Any]]:
        from distributed.scheduler import KilledWorker

        try:
            found: list[tuple[int, Any]] = future.result()
        except (CancelledError, KilledWorker, OSError, RuntimeError) as error:
            raise _lost(error) from error
        future.release()
        return found


def _lost(error: BaseException) -> ClusterError:
    words = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return ClusterError(f"The cluster was lost in the middle: {words}.")
