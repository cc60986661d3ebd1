"""Recognising a rank by what it does: a process becomes one when it joins a process group.

Ranks that ``torch.multiprocessing.spawn`` starts have no ``RANK`` in their
environment, and those of ``srun`` and ``mpirun`` have other names for it which
helpers of theirs inherit.  What tells for certain is the call of
``torch.distributed.init_process_group``.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hanglab.recorder.rank.error_guard import GUARD
from hanglab.recorder.rank.imports import AfterImport

_NAME = "init_process_group"

#: Names that launchers give a process's rank and the number of ranks, in order.
RANK_NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)

#: Called with the rank and the world size.
Joining = Callable[[int, "int | None"], None]


class JoinWatch:
    """Calls ``joining(rank, world_size)`` once, before the process waits for its peers."""

    def __init__(self, joining: Joining) -> None:
        self._joining: Joining | None = joining
        self._imports = AfterImport()

    def has_joined(self) -> bool:
        """True if the process had joined a group before anybody watched; then it is told now."""
        module = sys.modules.get("torch.distributed.distributed_c10d")
        with GUARD:
            if module is not None and module.is_initialized():
                self._tell(module.get_rank(), module.get_world_size())
                return True
        return False

    def install(self) -> None:
        self._imports.add("torch.distributed.distributed_c10d", self._wrap)

    def _wrap(self, module: ModuleType) -> None:
        original = getattr(module, _NAME)
        signature = inspect.signature(original)

        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            with GUARD:
                arguments = signature.bind(*args, **kwargs).arguments
                found = rank_of(arguments, os.environ)
                if found is not None:
                    self._tell(*found)
            result = original(*args, **kwargs)
            if self._joining is not None:
                # MPI's own backend knows the rank only now.
                with GUARD:
                    self._tell(module.get_rank(), module.get_world_size())
            return result

        setattr(module, _NAME, init_process_group)
        package = sys.modules.get("torch.distributed")
        if package is not None and getattr(package, _NAME, None) is original:
            setattr(package, _NAME, init_process_group)

    def _tell(self, rank: int, world_size: int | None) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining(rank, world_size)


def rank_of(
    arguments: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[int, int | None] | None:
    """Rank and world size out of the call's arguments, else out of the environment."""
    rank, size = arguments.get("rank", -1), arguments.get("world_size", -1)
    query = parse_qs(urlsplit(str(arguments.get("init_method") or "")).query)
    if rank is None or rank < 0:
        rank = int(query.get("rank", ["-1"])[0])
    if size is None or size < 0:
        size = int(query.get("world_size", ["-1"])[0])
    if rank >= 0:
        return int(rank), int(size) if size > 0 else _first(environment, 1)
    found = _first(environment, 0)
    if found is None:
        return None
    return found, int(size) if size > 0 else _first(environment, 1)


def _first(environment: Mapping[str, str], place: int) -> int | None:
    """The rank (place 0) or world size (1) by the first launcher's names that stand there."""
    for names in RANK_NAMES:
        if environment.get(names[0], "").isdecimal():
            value = environment.get(names[place], "")
            return int(value) if value.isdecimal() else None
    return None
