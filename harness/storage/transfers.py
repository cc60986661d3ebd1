"""Transfers of files: in blocks, several side by side, and again where a store was away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hanglab.harness.storage.locations import temporary

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

#: Bytes of a file that are in memory at a time.
BLOCK = 1 << 20
#: Files on their way at a time: a store answers each after some ten milliseconds.
SIDE_BY_SIDE = 8
#: Seconds before each further try: 7.5 in all, a store's restart or a lost connection; whoever
#: waits in front of a terminal waits no longer.
PAUSES_S = (0.5, 1.0, 2.0, 4.0)


def again(do: Callable[[], Outcome]) -> Outcome:
    """Does it, and again after each pause where a store was away; raises the last error."""
    for pause in PAUSES_S:
        try:
            return do()
        except Exception as error:
            if not temporary(error):
                raise
        time.sleep(pause)
    return do()


def side_by_side(do: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Does it for each; after the first error none that has not begun is begun."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        waiting = [pool.submit(do, item) for item in items]
        try:
            for future in waiting:
                future.result()
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
