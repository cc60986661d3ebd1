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

from hanglab.harness.nccl_emulated.communicator import Communicator
from hanglab.harness.nccl_emulated.reduction import PremulSum, Reduce, handed_over
from hanglab.harness.nccl_emulated.rounds import Joint, Kernel, Parts
from hanglab.harness.nccl_emulated.segment import BOX_BYTES, SLOT_BYTES, call_of

Make = Callable[[], Kernel]


class KernelKind(enum.IntEnum):
    """Kernels that cannot be mixed in one round, numbered as NCCL counts them (COUNTED)."""

    BROADCAST = 0
    REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_REDUCE = 4


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's memory as bytes, shape [n]; the tensor must be contiguous."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _chunks(wire: int, most: int) -> list[tuple[int, int]]:
    """(start, length) of the rounds that carry ``wire`` bytes; one even if there are none."""
    return [(start, min(most, wire - start)) for start in range(0, wire, most)] or [(0, 0)]


def all_reduce(comm: Communicator, tensor: torch.Tensor, reduce: Reduce) -> Make:
    wire = tensor.numel() * tensor.element_size()
    comm.count(KernelKind.ALL_REDUCE)
    call = call_of(KernelKind.ALL_REDUCE, wire)

    def finish(run: Sequence[Joint], parts: Parts) -> None:
        targets = [one.target for one in run if one.target is not None]
        first = targets[0]
        if not first.numel():
            return
        theirs = parts.view(first.dtype)
        if len(targets) == 1:
            reduce(theirs[:, 0], first.detach().reshape(-1))
            return
        reduced = torch.empty(theirs.shape[1:], dtype=first.dtype)
        reduce(theirs, reduced)
        torch._foreach_copy_(targets, list(reduced.view(-1, *first.shape).unbind(0)))

    if wire <= SLOT_BYTES:
        alike = (reduce, tensor.dtype, tensor.shape)
        source = _source(tensor, reduce)
        return Joint(comm.rounds, call, wire, source, tensor, finish, alike)
    flat = tensor.detach().reshape(-1)
    most = SLOT_BYTES // tensor.element_size()
    pieces = [flat[start : start + n] for start, n in _chunks(flat.numel(), most)]
    return in_turn(
        [
            Joint(comm.rounds, call, _size(one), _source(one, reduce), one, finish, None)
            for one in pieces
        ]
    )


def _source(tensor: torch.Tensor, reduce: Reduce) -> torch.Tensor | Callable[[], torch.Tensor]:
    if isinstance(reduce, PremulSum):
        return lambda: handed_over(tensor, reduce)
    return tensor


def _size(tensor: torch.Tensor) -> int:
    """Bytes of a tensor."""
    return tensor.numel() * tensor.element_size()


def broadcast(comm: Communicator, source: torch.Tensor, target: torch.Tensor, root: int) -> Make:
    """The root hands over ``source``, the others fill ``target``."""
    comm.count(KernelKind.BROADCAST)

    def kernel() -> Kernel:
        is_root, rounds = root == comm.rank, comm.rounds
        data = _bytes(source if is_root else target)
        call = call_of(KernelKind.BROADCAST, data.numel())
        for start, length in _chunks(data.numel(), SLOT_BYTES):
            piece = data[start : start + length]
            round_ = yield from rounds.publish(call, length, piece if is_root else None)
            if not is_root:
                yield from rounds.meet((root,), call, round_)
                piece.copy_(rounds.parts(round_, length)[root])
            rounds.release(round_, length)
        if is_root and target is not source:
            target.copy_(source)

    return kernel


def reduce_to(
    comm: Communicator, source: torch.Tensor, target: torch.Tensor, root: int, reduce: Reduce
) -> Make:
    """The root's ``target`` gets the reduction of every ``source``."""
    comm.count(KernelKind.REDUCE)

    def kernel() -> Kernel:
        rounds, data = comm.rounds, _bytes(handed_over(source, reduce))
        call = call_of(KernelKind.REDUCE, data.numel())
        into = _bytes(target)
        for start, length in _chunks(data.numel(), SLOT_BYTES):
            round_ = yield from rounds.publish(call, length, data[start : start + length])
            if root == comm.rank:
                yield from rounds.meet(range(comm.size), call, round_)
                if length:
                    parts = rounds.parts(round_, length).view(source.dtype)
                    reduce(parts, into[start : start + length].view(source.dtype))
            rounds.release(round_, length)

    return kernel


def all_gather(comm: Communicator, source: torch.Tensor, targets: Sequence[torch.Tensor]) -> Make:
    """``targets[r]``, or the r-th part of the only one, gets what member r hands over."""
    wire = _size(source)
    comm.count(KernelKind.ALL_GATHER)
    call = call_of(KernelKind.ALL_GATHER, wire)

    def piece(start: int, length: int) -> Joint:
        def finish(run: Sequence[Joint], parts: Parts) -> None:
            stop = start + length
            if len(targets) == 1:
                _bytes(targets[0]).view(comm.size, -1)[:, start:stop].copy_(parts[:, 0])
                return
            for target, part in zip(targets, parts[:, 0], strict=True):
                _bytes(target)[start:stop].copy_(part)

        def mine() -> torch.Tensor:
            return _bytes(source)[start : start + length]

        return Joint(comm.rounds, call, length, mine, None, finish, None)

    return _single([piece(*chunk) for chunk in _chunks(wire, SLOT_BYTES)])


def reduce_scatter(
    comm: Communicator, sources: Sequence[torch.Tensor], target: torch.Tensor, reduce: Reduce
) -> Make:
    """``target`` gets the reduction of the parts that the members have for this one."""
    size, wire = comm.size, _size(target)
    comm.count(KernelKind.REDUCE_SCATTER)
    call = call_of(KernelKind.REDUCE_SCATTER, wire)

    def piece(start: int, length: int) -> Joint:
        def mine_of_each() -> torch.Tensor:
            parts = [_bytes(handed_over(source, reduce)) for source in sources]
            if len(parts) == 1:
                return parts[0].view(size, -1)[:, start : start + length].reshape(-1)
            return torch.cat([part[start : start + length] for part in parts])

        def finish(run: Sequence[Joint], parts: Parts) -> None:
            if length:
                mine = parts[:, 0, comm.rank * length :][:, :length]
                into = _bytes(target)[start : start + length]
                reduce(mine.view(target.dtype), into.view(target.dtype))

        return Joint(comm.rounds, call, size * length, mine_of_each, None, finish, None)

    return _single([piece(*chunk) for chunk in _chunks(wire, SLOT_BYTES // size // 64 * 64)])


def _single(pieces: Sequence[Joint]) -> Make:
    return pieces[0] if len(pieces) == 1 else in_turn(pieces)


def barrier(comm: Communicator) -> Make:
    """An all_reduce of one number, as torch's ``barrier`` of NCCL is."""
    comm.count(KernelKind.ALL_REDUCE)
    call = call_of(KernelKind.ALL_REDUCE, 4)
    return Joint(comm.rounds, call, 4, None, None, lambda run, parts: None, None)


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
