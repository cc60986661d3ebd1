"""The process group: torch's calls, turned into operations of the emulated device.

Names of entries, and which tensors count as inputs and outputs, are those of torch 2.13,
ProcessGroupNCCL.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hanglab.harness.nccl_emulated import kernels
from hanglab.harness.nccl_emulated.arguments import check, only, reduce_op_of, root_of, split
from hanglab.harness.nccl_emulated.group import GroupEnd
from hanglab.harness.nccl_emulated.launches import Tensors
from hanglab.harness.nccl_emulated.reduction import reduction, with_factor
from hanglab.harness.nccl_emulated.settings import EmulationError
from hanglab.harness.nccl_emulated.work import EmulatedWork


class EmulatedGroup(GroupEnd):
    """One rank's end of a group."""

    # Collectives.

    def allreduce(self, tensors: Tensors, opts: Any = None) -> EmulatedWork | None:
        tensor = only(tensors)
        same = (tensor,)
        comm = self._launches.communicator()
        reduce = reduction(reduce_op_of(opts))
        make = kernels.all_reduce(comm, tensor, reduce)
        return self._launches.collective(
            "ALLREDUCE", "nccl:all_reduce", make, same, same, comm,
            held=with_factor(reduce, tensor),
        )  # fmt: skip

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> EmulatedWork | None:
        comm, reduce = self._launches.communicator(), reduction(reduce_op_of(opts))
        check(*tensors)
        make = kernels.in_turn([kernels.all_reduce(comm, one, reduce) for one in tensors])
        return self._launches.collective(
            "COALESCED", "nccl:allreduce_coalesced", make, tensors, tensors, comm
        )

    def broadcast(self, tensors: Tensors, opts: Any = None) -> EmulatedWork | None:
        tensor, comm = only(tensors), self._launches.communicator()
        make = kernels.broadcast(comm, tensor, tensor, root_of(opts))
        return self._launches.collective(
            "BROADCAST", "nccl:broadcast", make, [tensor], [tensor], comm
        )

    def reduce(self, tensors: Tensors, opts: Any = None) -> EmulatedWork | None:
        tensor, comm = only(tensors), self._launches.communicator()
        reduce = reduction(reduce_op_of(opts))
        make = kernels.reduce_to(comm, tensor, tensor, root_of(opts), reduce)
        return self._launches.collective(
            "REDUCE", "nccl:reduce", make, [tensor], [tensor], comm,
            held=with_factor(reduce, tensor),
        )  # fmt: skip

    def allgather(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> EmulatedWork | None:
        source, targets, comm = only(inputs), outputs[0], self._launches.communicator()
        check(*targets)
        if all(one.numel() == source.numel() for one in targets):
            make = kernels.all_gather(comm, source, targets)
            return self._launches.collective(
                "ALLGATHER", "nccl:all_gather", make, [source], targets, comm
            )
        parts = [
            kernels.broadcast(comm, source, target, root) for root, target in enumerate(targets)
        ]
        return self._launches.uneven(
            "nccl:_broadcast_oop", "ALLGATHER", parts, source, targets, comm
        )

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> EmulatedWork | None:
        comm = self._launches.communicator()
        check(output, input)
        make = kernels.all_gather(comm, input, [output])
        return self._launches.collective(
            "_ALLGATHER_BASE", "nccl:_all_gather_base", make, [input], [output], comm
        )

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> EmulatedWork | None:
        comm = self._launches.communicator()
        check(*outputs, *inputs)
        pairs = zip(inputs, outputs, strict=True)
        make = kernels.in_turn([kernels.all_gather(comm, one, [into]) for one, into in pairs])
        name = "nccl:all_gather_into_tensor_coalesced"
        return self._launches.collective("COALESCED", name, make, inputs, outputs, comm)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None
    ) -> EmulatedWork | None:
        target, sources, comm = only(outputs), inputs[0], self._launches.communicator()
        check(*sources)
        reduce = reduction(reduce_op_of(opts))
        if all(one.numel() == target.numel() for one in sources):
            make = kernels.reduce_scatter(comm, sources, target, reduce)
            return self._launches.collective(
                "REDUCE_SCATTER", "nccl:reduce_scatter", make, sources, [target], comm,
                held=with_factor(reduce, *sources, target),
            )  # fmt: skip
        parts = [
            kernels.reduce_to(comm, one, target, root, reduce) for root, one in enumerate(sources)
        ]
        return self._launches.uneven(
            "nccl:_reduce_oop", "REDUCE_SCATTER", parts, target, sources, comm
        )

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> EmulatedWork | None:
        comm = self._launches.communicator()
        check(output, input)
        reduce = reduction(reduce_op_of(opts))
        make = kernels.reduce_scatter(comm, [input], output, reduce)
        return self._launches.collective(
            "_REDUCE_SCATTER_BASE", "nccl:_reduce_scatter_base", make, [input], [output], comm,
            held=with_factor(reduce, input, output),
        )  # fmt: skip

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> EmulatedWork | None:
        comm, reduce = self._launches.communicator(), reduction(reduce_op_of(opts))
        check(*outputs, *inputs)
        pairs = zip(inputs, outputs, strict=True)
        make = kernels.in_turn(
            [kernels.reduce_scatter(comm, [one], into, reduce) for one, into in pairs]
        )
        name = "nccl:reduce_scatter_tensor_coalesced"
        return self._launches.collective("COALESCED", name, make, inputs, outputs, comm)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> EmulatedWork | None:
        source, root, comm = only(inputs), root_of(opts), self._launches.communicator()
        targets = list(outputs[0]) if root == self._rank else []
        check(*targets)
        make = kernels.grouped(
            [
                kernels.copy(source, into) if peer == root else kernels.receive(comm, into, peer)
                for peer, into in enumerate(targets)
            ]
            or [kernels.send(comm, source, root)]
        )
        return self._launches.collective("GATHER", "nccl:gather", make, [source], targets, comm)

    def scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None
    ) -> EmulatedWork | None:
        target, root, comm = only(outputs), root_of(opts), self._launches.communicator()
        sources = list(inputs[0]) if root == self._rank else []
        check(*sources)
        make = kernels.grouped(
            [
                kernels.copy(one, target) if peer == root else kernels.send(comm, one, peer)
                for peer, one in enumerate(sources)
            ]
            or [kernels.receive(comm, target, root)]
        )
        return self._launches.collective("SCATTER", "nccl:scatter", make, sources, [target], comm)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> EmulatedWork | None:
        comm = self._launches.communicator()
        check(*outputs, *inputs)
        make = self._launches.exchange(comm, inputs, outputs)
        work = self._launches.collective("ALLTOALL", "nccl:all_to_all", make, inputs, outputs, comm)
        return _with_split_lists(work, inputs, outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> EmulatedWork | None:
        comm = self._launches.communicator()
        check(output, input)
        into = split(output, output_split_sizes, self._launches.size)
        parts = split(input, input_split_sizes, self._launches.size)
        make = self._launches.exchange(comm, parts, into)
        work = self._launches.collective(
            "ALLTOALL_BASE", "nccl:all_to_all", make, [input], [output], comm
        )
        return _with_split_lists(work, parts, into)

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> EmulatedWork | None:
        device = None if opts is None else next(iter(opts.device_ids), None)
        comm = self._launches.communicator(device)
        tensor = torch.empty(1, device="meta")
        name = "nccl:all_reduce_barrier"
        return self._launches.collective(
            "BARRIER", name, kernels.barrier(comm), [tensor], [tensor], comm, blocks=True, held=()
        )

    def monitored_barrier(self, *args: Any, **kwargs: Any) -> None:
        raise EmulationError(
            "monitored_barrier is of gloo alone, as with NCCL.", "Use a barrier, or a gloo group."
        )

    # Messages.

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> EmulatedWork | None:
        return self._launches.message("SEND", only(tensors), dst, f"nccl:send {self._rank}->{dst}")

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> EmulatedWork | None:
        return self._launches.message("RECV", only(tensors), src, f"nccl:recv {self._rank}<-{src}")

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> EmulatedWork | None:
        raise EmulationError("ProcessGroupNCCL does not support recvAnysource", "Name the source.")


def _with_split_lists(
    work: EmulatedWork | None, parts: Tensors, into: Tensors
) -> EmulatedWork | None:
    """The work, whose entry knows how many elements go to each rank and come from each."""
    if work is not None:
        work.entry.splits = [[one.numel() for one in side] for side in (parts, into)]
    return work
