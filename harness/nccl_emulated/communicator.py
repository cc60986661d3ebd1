"""A communicator: members that have joined one segment, and the queue of one member's device.

Connecting blocks the host until every member has come, as ``ncclCommInitRank`` does: NCCL's user
guide, "Creating a Communicator"; torch 2.13 connects at the first operation, ``initNCCLComm`` in
ProcessGroupNCCL.cpp, where rank 0 hands its unique id to the others through the store.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Generator
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch.distributed import DistBackendError, Store

from hanglab.harness.nccl_emulated.doorbell import Address, Doorbell, PeerDoorbell
from hanglab.harness.nccl_emulated.segment import SLOTS, Head, Segment
from hanglab.harness.nccl_emulated.settings import EmulationError

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.operation import DeviceOperation

#: A kernel: it gives back control wherever it can get no further at the moment.
Kernel = Generator[None, None, None]
#: Pause between two looks at who has joined, in seconds.
_PACE_S = 0.0005


class Communicator:
    """One member's end of it.  ``queue`` is served by the device, first in first out."""

    def __init__(self, segment: Segment, rank: int) -> None:
        self.rank = rank
        self.size = segment.size
        self._segment = segment
        self._peers: list[PeerDoorbell | None] = []
        self.queue: deque[DeviceOperation] = deque()
        self._round = segment.written[rank]
        self.aborted = False
        #: A kernel gives back control once it has published its round, though others may have.
        self.posting = False

    # Rounds of collectives.

    @property
    def rounds(self) -> int:
        """Rounds that this member has published."""
        return self._round

    @property
    def has_room(self) -> bool:
        return all(done + SLOTS > self._round for done in self._segment.read)

    def refuse_if_aborted(self) -> None:
        """Raises what torch raises of a launch after the abort (``NCCLComm::getNcclComm``)."""
        if self.aborted:
            raise DistBackendError(f"NCCL communicator was aborted on rank {self.rank}.")

    def place_of(self, pid: int) -> int | None:
        """The member whose device is that of a process."""
        members = range(self.size)
        return next((one for one in members if self._segment.doorbells[3 * one] == pid), None)

    def publish(
        self, head: Head, payload: torch.Tensor | None, start: int = 0
    ) -> Generator[None, None, int]:
        """Put one slot up for the others; returns the number of the round."""
        segment, me, round_ = self._segment, self.rank, self._round
        read, written = segment.read, segment.written
        while any(done + SLOTS <= round_ for done in read):
            yield
        segment.write_head(me, round_, head)
        if payload is not None:
            segment.payload(me, round_, start, payload.numel()).copy_(payload)
        written[me] = self._round = round_ + 1
        for peer in self._peers:
            if peer is not None:
                peer.ring()
        if self.posting:
            yield
        return round_

    def meet(self, members: range | tuple[int, ...], head: Head, round_: int) -> Kernel:
        """Returns once those members have published this round with the same call."""
        written = self._segment.written
        for member in members:
            while written[member] <= round_:
                yield
        for member in members:
            theirs = self._segment.head(member, round_)
            if theirs.kind != head.kind or theirs.wire != head.wire:
                # The kernels wait in each other's buffers for what never comes.
                while True:
                    yield

    def payloads(self, round_: int, start: int, length: int) -> torch.Tensor:
        return self._segment.payloads(round_, start, length)

    def payload(self, member: int, round_: int, length: int) -> torch.Tensor:
        return self._segment.payload(member, round_, 0, length)

    def release(self, round_: int) -> None:
        """Release what this round has been read from."""
        self._segment.read[self.rank] = round_ + 1
        if (round_ + 1) % (SLOTS // 2) == 0:
            for peer in self._peers:
                if peer is not None:
                    peer.ring()

    # Messages.

    def send_piece(self, target: int, wire: int, piece: torch.Tensor) -> Kernel:
        """Returns once the receiver has taken it."""
        segment, at = self._segment, self.rank * self.size + target
        segment.write_wire(self.rank, target, wire)
        segment.box(self.rank, target, piece.numel()).copy_(piece)
        number = segment.sent[at] + 1
        segment.sent[at] = number
        self._ring(target)
        while segment.taken[at] < number:
            yield

    def take_piece(self, source: int, wire: int, piece: torch.Tensor) -> Kernel:
        segment, at = self._segment, source * self.size + self.rank
        while segment.sent[at] == segment.taken[at]:
            yield
        while segment.wire(source, self.rank) != wire:
            yield  # of another size: it is never taken
        piece.copy_(segment.box(source, self.rank, piece.numel()))
        segment.taken[at] += 1
        self._ring(source)

    def _ring(self, member: int) -> None:
        peer = self._peers[member]
        if peer is not None:
            peer.ring()

    # Joining.

    def join(self, doorbell: Doorbell, known: dict[Address, PeerDoorbell], until: float) -> None:
        """Returns when all members have joined; raises EmulationError when it is too late."""
        segment, me = self._segment, self.rank
        segment.doorbells[3 * me : 3 * me + 3] = memoryview(
            b"".join(word.to_bytes(8, "little") for word in doorbell.address)
        ).cast("Q")
        segment.joined[me] = 1
        while not all(segment.joined):
            if time.monotonic() > until:
                late = [str(r) for r in range(self.size) if not segment.joined[r]]
                raise EmulationError(
                    f"rank {', '.join(late)} of the group did not join the communicator in time."
                )
            time.sleep(_PACE_S)
        for member in range(self.size):
            address = Address(*segment.doorbells[3 * member : 3 * member + 3])
            if member == me:
                self._peers.append(None)
                continue
            if address not in known:
                known[address] = PeerDoorbell(address)
            self._peers.append(known[address])


def connect(
    store: Store,
    key: str,
    rank: int,
    size: int,
    doorbell: Doorbell,
    known: dict[Address, PeerDoorbell],
    timeout: timedelta,
) -> Communicator:
    """A communicator of all who ask ``store`` for ``key``; blocks until they have."""
    until = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        segment, descriptor = Segment.create(size)
        store.set(key, f"{os.getpid()}:{descriptor}")
    else:
        # In C++ no recorder sees this wait, so it must not look like one of the script's.
        while not store.check([key]):
            if time.monotonic() > until:
                raise EmulationError(
                    f"rank 0 of the group did not make the communicator {key} in time."
                )
            time.sleep(_PACE_S)
        pid, _, number = store.get(key).decode().partition(":")
        try:
            descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise EmulationError(
                f"the memory of rank 0 (process {pid}) cannot be had: {error.strerror}.",
                "All ranks of an emulated job run on one host, as one user.",
            ) from error
        segment = Segment(descriptor, size)
    communicator = Communicator(segment, rank)
    communicator.join(doorbell, known, until)
    os.close(descriptor)
    return communicator
