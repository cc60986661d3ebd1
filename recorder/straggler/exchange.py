"""Exchange of timings among ranks: over the job's store or through files.

Never through its collectives, but for what ranks that stop together must know
at the same step: a rank that does not answer costs the others nothing.
Everybody writes under keys of their own, and nobody waits for a key that is not
there.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hanglab.recorder.case import folders

T = TypeVar("T")


class Exchange(Protocol):
    """Publish a value: others read it whole under its key until it is published anew.

    May raise anything that a network or a disk can cause.
    """

    def publish(self, key: str, value: bytes) -> None: ...

    def read(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Values of these keys, as far as they are there."""


class StoreExchange:
    """Over a store of torch.distributed, below a prefix of its own."""

    def __init__(self, store: Any, prefix: str) -> None:
        from torch.distributed import PrefixStore

        # A connection of our own: a get that somebody else waits in would hold the other.
        with contextlib.suppress(Exception):
            store = store.clone()
        self._store: Any = PrefixStore(prefix, store)
        self._extended = bool(store.has_extended_api())
        #: Keys that have been published.  Nobody deletes them: asking for one blocks no more.
        self._published: set[str] = set()

    def publish(self, key: str, value: bytes) -> None:
        # It says that it takes text, and takes bytes as they are.
        self._store.set(key, value)

    def read(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        unseen = [key for key in wanted if key not in self._published]
        if unseen and not self._store.check(unseen):
            unseen = [key for key in unseen if self._store.check([key])]
        self._published.update(unseen)
        wanted = [key for key in wanted if key in self._published]
        if self._extended and wanted:
            return dict(zip(wanted, self._store.multi_get(wanted), strict=True))
        return {key: self._store.get(key) for key in wanted}


class FolderExchange:
    """Through a folder that all ranks share."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folders.make_private(folder / _file_name(prefix))

    def publish(self, key: str, value: bytes) -> None:
        folders.write_whole(self._folder / _file_name(key), value)

    def read(self, keys: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                found[key] = (self._folder / _file_name(key)).read_bytes()
        return found


def of_job(prefix: str, folder: str | os.PathLike[str] | None) -> Exchange | None:
    """Exchange through ``folder`` if one is given, else over the store of the default group.

    None where there is neither.
    """
    if folder is not None:
        return FolderExchange(Path(folder), prefix)
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not module.is_initialized():
        return None
    return StoreExchange(module._get_default_store(), prefix)


def rank_and_size() -> tuple[int, int]:
    """Rank and size of the default group, else by the environment, else of a process by itself."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is not None and module.is_initialized():
        return module.get_rank(), module.get_world_size()
    numbers = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    if all(number.isdecimal() for number in numbers):
        return int(numbers[0]), max(1, int(numbers[1]))
    return 0, 1


def told_by_rank0(value: T) -> T:
    """Rank 0's value, on every rank.  A collective of the default group, if there is one."""
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized():
        return value
    values = [value]
    distributed.broadcast_object_list(values, src=0)
    return values[0]


def _file_name(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", key)
