"""Parts of the work on a cluster: so many files that to send them costs little beside reading."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from hanglab.analyzer.flight_recorder.kept_child import KeptChild, KeptChildPool
from hanglab.analyzer.flight_recorder.worker_pool import Limits, Lost

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Of each thread of a worker, the child that reads for it.
_THREAD = threading.local()
#: Files of a batch: reading one takes 3 ms (docs/performance.md), and Dask needs 1 ms a task.
MOST_FILES = 64


@dataclass(frozen=True)
class LimitedItem(Generic[Item]):
    """An item, its number in the whole, and what reading it may take."""

    number: int
    item: Item
    limits: Limits


Batch = list[LimitedItem[Item]]


def make_batches(
    items: Sequence[Item], limits: Callable[[Item], Limits], workers: int
) -> Iterator[Batch[Item]]:
    """Batches of one size; where items are few each worker gets four, so that none waits long."""
    size = max(1, min(MOST_FILES, -(-len(items) // (4 * workers))))
    for begin in range(0, len(items), size):
        part = enumerate(items[begin : begin + size], start=begin)
        yield [LimitedItem(number, item, limits(item)) for number, item in part]


def do_batch(
    function: Callable[[Item], Result],
    batch: Batch[Item],
    bring: Callable[[Sequence[Item]], Sequence[Item]] | None = None,
) -> list[tuple[int, Result | Lost]]:
    """Results of a batch, by number; runs in a worker.

    ``bring`` fetches what is to be read.  The worker's child, which is held to the limits, stays
    for the next batch: it has learned how dumps of the job look.
    """
    if bring is not None:
        items = bring([one.item for one in batch])
        batch = [replace(one, item=item) for one, item in zip(batch, items, strict=True)]
    if not hasattr(_THREAD, "child"):
        _THREAD.child = KeptChild()
    pool = KeptChildPool(partial(_do, function), batch, _limits, kept=_THREAD.child)
    return [(batch[place].number, result) for place, result in pool.run()]


def shown_of_batch(
    shown: Callable[[Result], Result], made: list[tuple[int, Result]]
) -> list[tuple[int, Result]]:
    """Parts of results that go to the client while these stay here; runs in a worker."""
    return [(number, shown(result)) for number, result in made]


def unite_chosen(
    unite: Callable[[list[Any]], Result], made: list[tuple[int, Any]], numbers: frozenset[int]
) -> Result:
    """The values of some results as one; runs in a worker."""
    return unite([result.value for number, result in made if number in numbers])


def _do(function: Callable[[Item], Result], one: LimitedItem[Item]) -> Result:
    return function(one.item)


def _limits(one: LimitedItem[Item]) -> Limits:
    return one.limits
