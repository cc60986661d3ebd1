"""A group: its name, its store, its batches, and the groups that are split off it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup
from torch.distributed import PrefixStore, Store

from hanglab.harness.nccl_emulated.connections import NO_COLOR
from hanglab.harness.nccl_emulated.host_reads import watch_reads
from hanglab.harness.nccl_emulated.launches import Launches
from hanglab.harness.nccl_emulated.names import NAME
from hanglab.harness.nccl_emulated.work import EmulatedWork

#: torch's stubs know more overloads than a group has to have.
_Base: Any = ProcessGroup


class GroupEnd(_Base):  # type: ignore[misc]
    """One rank's end of a group, apart from what it launches."""

    def __init__(
        self,
        store: Store,
        root_store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        global_rank: int,
        members: Sequence[int],
        eager: bool = False,
        parent: GroupEnd | None = None,
    ) -> None:
        super().__init__(rank, size)
        self._rank = rank
        self._stores = store, root_store
        self._global_rank = global_rank
        above = None if parent is None else parent._launches.connections
        self._launches: Launches = Launches(
            store, root_store, rank, size, timeout, global_rank, members, eager, above
        )
        watch_reads()

    # What torch asks of a group.

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    def getGroupName(self) -> str:
        return self._launches.state.name

    def setGroupName(self, name: str) -> None:
        self._launches.state.name = str(name)

    def getGroupDesc(self) -> str:
        return self._launches.state.description

    def setGroupDesc(self, description: str) -> None:
        self._launches.state.description = str(description)

    def _get_sequence_number_for_group(self) -> int:
        return self._launches.collectives

    def _set_sequence_number_for_group(self) -> None:
        """Every rank counts from nothing."""

    def set_timeout(self, timeout: timedelta) -> None:
        self._launches.set_timeout(timeout)

    # Groups that are split off this one (``supportsSplitting`` of Backend.hpp).

    supports_splitting = True

    def _get_backend(self, device: torch.device) -> GroupEnd:
        """The group is its own backend, whatever device it is asked for."""
        return self

    def get_group_store(self) -> Store:
        return self._stores[0]

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Its communicator was made with the group, as that was made on a device."""

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Take part in the split of others, as ``performNocolorSplit`` does."""
        self._launches.connections.split(NO_COLOR, self._rank)

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: object = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: object = None,
    ) -> GroupEnd | None:
        """A new group of some members, numbered as in this one; None for who is not in it."""
        if self._rank not in ranks:
            self._launches.connections.split(NO_COLOR, self._rank)
            return None
        own = self._launches
        group = type(self)(
            PrefixStore(f"{group_name}/", self._stores[0]), self._stores[1],
            list(ranks).index(self._rank), len(ranks), timeout or own.connections.timeout,
            self._global_rank, [own.state.ranks[rank] for rank in ranks], eager=True, parent=self,
        )  # fmt: skip
        group.setGroupName(group_name or "")
        group.setGroupDesc(group_desc or "undefined")
        return group

    @property
    def options(self) -> SimpleNamespace:
        """Options that torch copies for a group that is split off; all are the parent's."""
        return SimpleNamespace()

    def comm_split_count(self) -> int:
        return self._launches.connections.splits

    def shutdown(self) -> None:
        self._launches.flush()

    def abort(self) -> None:
        self._launches.abort()

    def _start_coalescing(self, device: torch.device) -> None:
        self._launches.start_batch()

    def _end_coalescing(self, device: torch.device) -> EmulatedWork | None:
        return self._launches.end_batch()
