"""Kernels: how each operation agrees with its peers and moves data.

A kernel gives back control wherever it waits, so that one thread serves many.  What it compares
with its peers is what would make NCCL's kernels wait for ever: the kind of the operation and the
bytes on the wire.  Neither types nor roots are compared ("Data Pointers" and "Collective
Operations" of NCCL's user guide leave both to the caller): such a call goes wrong in silence.
A send is done when its receive has taken it; NCCL's guide, "Point-to-point communication", calls
it blocking for the GPU, though small messages may fit into buffers on real links.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import torch

from hanglab.harness.nccl_emulated.communicator import Communicator, Kernel
from hanglab.harness.nccl_emulated.reduction import Reduce
from hanglab.harness.nccl_emulated.segment import BOX_BYTES, SLOT_BYTES, Head

Make = Callable[[], Kernel]


class KernelKind(enum.IntEnum):
    """Kernels that cannot be mixed in one round."""

    ALL_REDUCE = 1
    BROADCAST = 2
    REDUCE = 3
    ALL_GATHER = 4
    REDUCE_SCATTER = 5


class Joint:
    """A kernel of one round that no member finishes before all have published it."""

    def __init__(self, start: Make) -> None:
        self._start = start

    def __call__(self) -> Kernel:
        return self._start()


def _joint(start: Make, tensor: torch.Tensor, most: int = SLOT_BYTES) -> Make:
    return Joint(start) if tensor.numel() * tensor.element_size() <= most else start


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's memory as bytes, shape [n]; the tensor must be contiguous."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _chunks(wire: int, most: int) -> list[tuple[int, int]]:
    """(start, length) of the rounds that carry ``wire`` bytes; one even if there are none."""
    return [(start, min(most, wire - start)) for start in range(0, wire, most)] or [(0, 0)]


def all_reduce(comm: Communicator, tensor: torch.Tensor, reduce: Reduce) -> Make:
    def kernel() -> Kernel:
        data = _bytes(tensor)
        head = Head(KernelKind.ALL_REDUCE, 0, data.numel())
        everybody = range(comm.size)
        for start, length in _chunks(head.wire, SLOT_BYTES):
            piece = data[start : start + length]
            round_ = yield from comm.publish(head, piece)
            yield from comm.meet(everybody, head, round_)
            if length:
                parts = comm.payloads(round_, 0, length).view(tensor.dtype)
                reduce(parts, piece.view(tensor.dtype))
            comm.release(round_)

    return _joint(kernel, tensor)


def broadcast(comm: Communicator, source: torch.Tensor, target: torch.Tensor, root: int) -> Make:
    """The root hands over ``source``, the others fill ``target``."""

    def kernel() -> Kernel:
        is_root = root == comm.rank
        data = _bytes(source if is_root else target)
        head = Head(KernelKind.BROADCAST, root, data.numel())
        for start, length in _chunks(head.wire, SLOT_BYTES):
            piece = data[start : start + length]
            round_ = yield from comm.publish(head, piece if is_root else None)
            if not is_root:
                yield from comm.meet((root,), head, round_)
                piece.copy_(comm.payload(root, round_, length))
            comm.release(round_)
        if is_root and target is not source:
            target.copy_(source)

    return kernel


def reduce_to(
    comm: Communicator, source: torch.Tensor, target: torch.Tensor, root: int, reduce: Reduce
) -> Make:
    """The root's ``target`` gets the reduction of every ``source``."""

    def kernel() -> Kernel:
        data = _bytes(source)
        head = Head(KernelKind.REDUCE, root, data.numel())
        into = _bytes(target) if root == comm.rank else data
        for start, length in _chunks(head.wire, SLOT_BYTES):
            round_ = yield from comm.publish(head, data[start : start + length])
            if root == comm.rank:
                yield from comm.meet(range(comm.size), head, round_)
                if length:
                    parts = comm.payloads(round_, 0, length).view(source.dtype)
                    reduce(parts, into[start : start + length].view(source.dtype))
            comm.release(round_)

    return kernel


def all_gather(comm: Communicator, source: torch.Tensor, targets: Sequence[torch.Tensor]) -> Make:
    """``targets[r]``, or the r-th part of the only one, gets what member r hands over."""

    def kernel() -> Kernel:
        data = _bytes(source)
        head = Head(KernelKind.ALL_GATHER, 0, data.numel())
        whole = _bytes(targets[0]).view(comm.size, -1) if len(targets) == 1 else None
        for start, length in _chunks(head.wire, SLOT_BYTES):
            round_ = yield from comm.publish(head, data[start : start + length])
            yield from comm.meet(range(comm.size), head, round_)
            parts = comm.payloads(round_, 0, length)
            if whole is not None:
                whole[:, start : start + length].copy_(parts)
            else:
                for target, part in zip(targets, parts, strict=True):
                    _bytes(target)[start : start + length].copy_(part)
            comm.release(round_)

    return _joint(kernel, source)


def reduce_scatter(
    comm: Communicator, sources: Sequence[torch.Tensor], target: torch.Tensor, reduce: Reduce
) -> Make:
    """``target`` gets the reduction of the parts that the members have for this one."""

    def kernel() -> Kernel:
        size, into = comm.size, _bytes(target)
        wire = into.numel()
        parts = [_bytes(source) for source in sources]
        whole = parts[0].view(size, -1) if len(parts) == 1 else None
        head = Head(KernelKind.REDUCE_SCATTER, 0, wire)
        most = SLOT_BYTES // size // 64 * 64
        for start, length in _chunks(wire, most):
            stop = start + length
            if whole is not None:
                piece = whole[:, start:stop].reshape(-1)
            else:
                piece = torch.cat([part[start:stop] for part in parts])
            round_ = yield from comm.publish(head, piece)
            yield from comm.meet(range(size), head, round_)
            if length:
                mine = comm.payloads(round_, comm.rank * length, length)
                if mine.storage_offset() % target.element_size():
                    mine = mine.clone()
                reduce(mine.view(target.dtype), into[start:stop].view(target.dtype))
            comm.release(round_)

    return _joint(kernel, target, SLOT_BYTES // comm.size // 64 * 64)


def barrier(comm: Communicator) -> Make:
    """An all_reduce of one number, as torch's ``barrier`` of NCCL is."""

    def kernel() -> Kernel:
        head = Head(KernelKind.ALL_REDUCE, 0, 4)
        round_ = yield from comm.publish(head, None)
        yield from comm.meet(range(comm.size), head, round_)
        comm.release(round_)

    return Joint(kernel)


class Message:
    """One send or receive.  Those of one lane, a direction and a peer, keep their order."""

    def __init__(self, lane: tuple[str, int], start: Make) -> None:
        self.lane = lane
        self._start = start

    def __call__(self) -> Kernel:
        return self._start()


def send(comm: Communicator, tensor: torch.Tensor, target: int) -> Message:
    def kernel() -> Kernel:
        data = _bytes(tensor)
        for start, length in _chunks(data.numel(), BOX_BYTES):
            yield from comm.send_piece(target, data.numel(), data[start : start + length])

    return Message(("send", target), kernel)


def receive(comm: Communicator, tensor: torch.Tensor, source: int) -> Message:
    def kernel() -> Kernel:
        data = _bytes(tensor)
        for start, length in _chunks(data.numel(), BOX_BYTES):
            yield from comm.take_piece(source, data.numel(), data[start : start + length])

    return Message(("receive", source), kernel)


def copy(source: torch.Tensor, target: torch.Tensor) -> Make:
    """A part that a rank hands to itself."""

    def kernel() -> Kernel:
        data, into = _bytes(source), _bytes(target)
        while data.numel() != into.numel():
            yield
        into.copy_(data)

    return kernel


class Grouped:
    """Messages of one group: none waits for those of another lane, as between
    ``ncclGroupStart`` and ``ncclGroupEnd``.
    """

    def __init__(self, parts: Sequence[Make]) -> None:
        self.parts = parts

    def __call__(self) -> Kernel:
        lanes: dict[object, list[Kernel]] = {}
        for number, part in enumerate(self.parts):
            name = part.lane if isinstance(part, Message) else number
            lanes.setdefault(name, []).append(part())
        waiting = list(lanes.values())
        while waiting:
            for lane in waiting:
                while lane and _is_over(lane[0]):
                    del lane[0]
            waiting = [lane for lane in waiting if lane]
            if waiting:
                yield


def grouped(parts: Sequence[Make]) -> Make:
    return Grouped(parts)


def _is_over(kernel: Kernel) -> bool:
    try:
        next(kernel)
    except StopIteration:
        return True
    return False


def in_turn(parts: Sequence[Make]) -> Make:
    """Collectives of one group, one after the other."""

    def kernel() -> Kernel:
        for part in parts:
            yield from part()

    return kernel
