"""Launches of one group: its communicators, its numbers, its batch, and the entries it records.

Numbers are those of torch 2.13, ProcessGroupNCCL.cpp: ``collective``, ``pointToPoint``,
``startCoalescing`` and ``endCoalescing``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta

import torch
from torch.distributed import Store
from torch.distributed import distributed_c10d as c10d

from hanglab.harness.nccl_emulated import kernels
from hanglab.harness.nccl_emulated.communicator import Communicator
from hanglab.harness.nccl_emulated.connections import NO_COLOR, Connections
from hanglab.harness.nccl_emulated.device import current_device
from hanglab.harness.nccl_emulated.kernels import Make
from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.ring import RingEntry, process_ring
from hanglab.harness.nccl_emulated.snapshots import snapshot
from hanglab.harness.nccl_emulated.stream import Captured, current_stream
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
        parent: Connections | None = None,
    ) -> None:
        #: The store of the whole job, on which watchdogs signal.
        self.root_store = root_store
        self.rank = rank
        self.size = size
        self.connections = Connections(store, rank, size, timeout)
        self.set_timeout(timeout)
        self.blocking_wait = os.environ.get("TORCH_NCCL_BLOCKING_WAIT", "0") == "1"
        self._ring = process_ring()
        self.device = current_device()
        self.state = self._ring.new_group()
        self.state.ranks = list(members) or list(range(size))
        #: Bound to a device, so that the communicator is made with the group, and messages have
        #: none of their own (``eagerInit_``).
        self.eager = eager
        #: Operations of either kind, as torch counts them.
        self.collectives = 0
        self.messages = 0
        self.operations = 0
        self.batch: CallBatch | None = None
        self.watchdog = process_watchdog(global_rank)
        self.watchdog.add_group(self)
        if eager:
            color = NO_COLOR if parent is None else color_of(members)
            self.connections.make_at_once(parent, color)

    def set_timeout(self, timeout: timedelta) -> None:
        self.connections.timeout = timeout
        self._timeout_ms = int(timeout.total_seconds() * 1000)

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
        for communicator in self.connections.made.values():
            self.device.wait_for(snapshot(communicator.queue))
            communicator.leave()
        self.watchdog.forget(self)

    def abort(self) -> None:
        """Ends what is open on this rank, undone; peers wait on."""
        self.watchdog.forget(self)
        for communicator in self.connections.made.values():
            communicator.abort()
        self.device.wakeup.ring()

    def communicator(self, device: int | None = None) -> Communicator:
        return self.connections.own(device)

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
            comm = self.connections.pair(peer)
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
        if current_stream().capture is None:
            self._ring.add(self._entry(name, inputs, outputs, is_p2p, None))

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
        if self._ring.hooked:
            name = hooked_name(name)
        return RingEntry(
            self.state, name, numbers, inputs, outputs, self._timeout_ms, is_p2p, operation
        )

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
        if held is None:
            held = inputs if outputs is inputs else [*inputs, *outputs]
        sequence = self.messages if is_p2p else self.collectives
        stream = current_stream()
        operation = stream.operation(name, make, held, comm)
        # ``initWork`` asks the kind, and what ends a batch is neither send nor receive.
        entry = self._entry(name, inputs, outputs, is_p2p and kind != "COALESCED", operation)
        if stream.capture is not None:
            # Neither the ring nor the watchdog hears of it, and no event of it can be asked for.
            stream.capture.append(Captured(name, make, held, comm))
            operation.completed_ns = operation.started_ns = time.time_ns()
            return EmulatedWork(self, kind, sequence, operation, entry, outputs)
        if not (self._ring.hooked and kind == "COALESCED" and not inputs):
            # A hook sees the calls of a batch, and not its end.
            self._ring.add(entry)
        self.state.enqueued = self.operations if self._ring.hooked else sequence
        work = EmulatedWork(self, kind, sequence, operation, entry, outputs, blocks)
        self.watchdog.watch(work)
        self.device.launch(operation)
        return work


#: Entries of nccl2 that are called otherwise than NCCL's (``hookOpName``, FlightRecorderHook.cpp
#: of torch 2.15).
_HOOKED = {"all_to_all": "all_to_all_single", "all_reduce_barrier": "barrier"}


def hooked_name(name: str) -> str:
    """Name of an entry of nccl2."""
    operation = name.partition(":")[2]
    return f"nccl2:{_HOOKED.get(operation, operation)}"


def color_of(members: Sequence[int]) -> int:
    """The color of a group's members in ``ncclCommSplit``, as torch makes it out of their list."""
    return int(c10d._process_group_color(list(members)))
