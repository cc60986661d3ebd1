"""Launches of one group: its communicators, its numbers, its batch, and the entries it records.

Numbers are those of torch 2.13, ProcessGroupNCCL.cpp: ``collective``, ``pointToPoint``,
``startCoalescing`` and ``endCoalescing``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

import torch
from torch.distributed import Store

from hanglab.harness.nccl_emulated import kernels
from hanglab.harness.nccl_emulated.communicator import Communicator, connect
from hanglab.harness.nccl_emulated.device import current_device
from hanglab.harness.nccl_emulated.kernels import Make
from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.ring import RingEntry, process_ring
from hanglab.harness.nccl_emulated.stream import current_stream
from hanglab.harness.nccl_emulated.watchdog import process_watchdog
from hanglab.harness.nccl_emulated.work import EmulatedWork

Tensors = Sequence[torch.Tensor]


class CallBatch:
    """Calls between the start and the end of coalescing."""

    def __init__(self) -> None:
        self.parts: list[Make] = []
        self.tensors: list[torch.Tensor] = []
        self.communicator: Communicator | None = None
        self.is_p2p = False


class Launches:
    """One rank's end of a group.  Communicators are made at the first operation that needs one."""

    def __init__(
        self,
        store: Store,
        root_store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        global_rank: int,
        members: Sequence[int],
        eager: bool,
    ) -> None:
        self.store = store
        #: The store of the whole job, on which watchdogs signal.
        self.root_store = root_store
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self.device = current_device()
        self.state = process_ring().new_group()
        self.state.ranks = list(members) or list(range(size))
        #: Bound to a device, so that the communicator is made with the group, and messages have
        #: none of their own (``eagerInit_``).
        self.eager = eager
        self.communicators: dict[str, Communicator] = {}
        self._made = 0
        #: Operations of either kind, as torch counts them.
        self.collectives = 0
        self.messages = 0
        self.operations = 0
        self.batch: CallBatch | None = None
        self.watchdog = process_watchdog(global_rank)
        self.watchdog.add_group(self)
        if eager:
            self.communicator()

    def start_batch(self) -> None:
        self.batch = CallBatch()

    def end_batch(self) -> EmulatedWork | None:
        batch, self.batch = self.batch, None
        if batch is None or batch.communicator is None:
            return None
        run = kernels.grouped if batch.is_p2p else kernels.in_turn
        return self._enqueue(
            "COALESCED", "nccl:coalesced", run(batch.parts), (), (), batch.communicator,
            is_p2p=batch.is_p2p, held=batch.tensors,
        )  # fmt: skip

    def flush(self) -> None:
        """Blocks until all that was launched is done, as ``ProcessGroupNCCL::shutdown`` does."""
        for communicator in self.communicators.values():
            self.device.wait_for(list(communicator.queue))
        self.watchdog.forget(self)

    def abort(self) -> None:
        """Ends what is open on this rank, undone; peers wait on."""
        self.watchdog.forget(self)
        for communicator in self.communicators.values():
            communicator.aborted = True
        self.device.doorbell.ring()

    def communicator(self, device: int | None = None) -> Communicator:
        """Communicator of this rank's device; another one gets another, as in ``getNCCLComm``."""
        return self._connected(str(_own_device() if device is None else device))

    def _connected(self, key: str) -> Communicator:
        if key not in self.communicators:
            store_key = f"nccl_emulated/{self._made}"
            self._made += 1
            self.communicators[key] = self._connect(store_key, self.rank, self.size)
        return self.communicators[key]

    def _pair(self, peer: int) -> Communicator:
        """The communicator of two ranks that messages outside of batches go through."""
        low, high = sorted((self.rank, peer))
        key = f"{low}:{high}"
        if key not in self.communicators:
            place = int(self.rank == high)
            self.communicators[key] = self._connect(f"nccl_emulated/{key}", place, 2)
        return self.communicators[key]

    def _connect(self, key: str, rank: int, size: int) -> Communicator:
        device = self.device
        made = connect(self.store, key, rank, size, device.doorbell, device.peers, self.timeout)
        device.add(made)
        return made

    def exchange(self, comm: Communicator, parts: Tensors, into: Tensors) -> Make:
        me = self.rank
        lanes: list[Make] = []
        for peer, (one, target) in enumerate(zip(parts, into, strict=True)):
            if peer == me:
                lanes.append(kernels.copy(one, target))
                continue
            if one.numel():
                lanes.append(kernels.send(comm, one, peer))
            if target.numel():
                lanes.append(kernels.receive(comm, target, peer))
        return kernels.grouped(lanes)

    def collective(
        self,
        kind: str,
        name: str,
        make: Make,
        inputs: Tensors,
        outputs: Tensors,
        comm: Communicator,
        blocks: bool = False,
        held: Tensors | None = None,
    ) -> EmulatedWork | None:
        held = [*inputs, *outputs] if held is None else held
        batch = self.batch
        if batch is None or batch.communicator is None:
            self.collectives += 1
        self.operations += 1
        if batch is not None:
            self._add(batch, make, name, inputs, outputs, comm, is_p2p=False)
            return None
        return self._enqueue(kind, name, make, inputs, outputs, comm, held=held, blocks=blocks)

    def message(self, kind: str, tensor: torch.Tensor, peer: int, name: str) -> EmulatedWork | None:
        batch = self.batch
        sends = kind == "SEND"
        make = kernels.send if sends else kernels.receive
        if batch is None or batch.communicator is None:
            self.messages += 1
        self.operations += 1
        if batch is not None:
            comm = self.communicator()
            part = make(comm, tensor, peer)
            self._add(batch, part, name, [tensor], [tensor], comm, is_p2p=True)
            return None
        if self.eager:
            comm, target = self.communicator(), peer
        else:
            comm = self._pair(peer)
            target = 1 - comm.rank
        part = make(comm, tensor, target)
        return self._enqueue(kind, name, part, [tensor], [tensor], comm, is_p2p=True)

    def _add(
        self,
        batch: CallBatch,
        make: Make,
        name: str,
        inputs: Tensors,
        outputs: Tensors,
        comm: Communicator,
        is_p2p: bool,
    ) -> None:
        comm.refuse_if_aborted()
        batch.parts.append(make)
        batch.tensors += [*inputs, *outputs]
        batch.communicator = comm
        batch.is_p2p = batch.is_p2p or is_p2p
        process_ring().add(self._entry(name, inputs, outputs, is_p2p, None))

    def uneven(
        self,
        name: str,
        kind: str,
        parts: list[Make],
        one: torch.Tensor,
        many: Tensors,
        comm: Communicator,
    ) -> EmulatedWork | None:
        """A collective of parts of several sizes, which torch makes a batch of rooted ones."""
        own = self.batch is None
        if own:
            self.start_batch()
        assert self.batch is not None
        for part, tensor in zip(parts, many, strict=True):
            inputs, outputs = ([one], [tensor]) if kind == "ALLGATHER" else ([tensor], [one])
            self.collective(kind, name, part, inputs, outputs, comm)
        return self.end_batch() if own else None

    def _entry(
        self,
        name: str,
        inputs: Tensors,
        outputs: Tensors,
        is_p2p: bool,
        operation: DeviceOperation | None,
    ) -> RingEntry:
        numbers = (self.collectives, self.messages, self.operations)
        limit = int(self.timeout.total_seconds() * 1000)
        return RingEntry(self.state, name, numbers, inputs, outputs, limit, is_p2p, operation)

    def _enqueue(
        self,
        kind: str,
        name: str,
        make: Make,
        inputs: Tensors,
        outputs: Tensors,
        comm: Communicator,
        is_p2p: bool = False,
        blocks: bool = False,
        held: Tensors | None = None,
    ) -> EmulatedWork:
        comm.refuse_if_aborted()
        tensors = [*inputs, *outputs] if held is None else held
        sequence = self.messages if is_p2p else self.collectives
        entry = self._entry(name, inputs, outputs, is_p2p, None)
        operation = current_stream().operation(name, make, tensors, comm)
        entry.operation = operation
        process_ring().add(entry)
        self.state.enqueued = sequence
        work = EmulatedWork(self, kind, sequence, operation, entry, outputs, blocks)
        self.watchdog.watch(work)
        self.device.launch(operation)
        return work


def _own_device() -> int:
    """The number of the device that the rank has chosen, as torch.cuda tells it."""
    with contextlib.suppress(Exception):
        return int(torch._C._cuda_getDevice())
    return 0
