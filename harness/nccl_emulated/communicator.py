"""A communicator: members that have joined one segment, and the queue of one member's device.

Connecting blocks the host until every member has come, as ``ncclCommInitRank`` does: NCCL's user
guide, "Creating a Communicator"; torch 2.13 connects at the first operation, ``initNCCLComm`` in
ProcessGroupNCCL.cpp, where rank 0 hands its unique id to the others through the store.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.distributed import DistBackendError, Store

from hanglab.harness.nccl_emulated.rounds import Kernel, Rounds
from hanglab.harness.nccl_emulated.segment import COUNTED, Segment
from hanglab.harness.nccl_emulated.settings import EmulationError
from hanglab.harness.nccl_emulated.wakeup import Address, PeerWakeup, Wakeup

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.operation import DeviceOperation

#: Pause between two looks at who has joined, in seconds.
PACE_S = 0.0005


#: Of a member's state: its ``ncclResult_t``, whether it has aborted, whether it has left.
_ERROR, _ABORTED, _LEFT = range(len(COUNTED), len(COUNTED) + 3)
#: ``ncclUnhandledCudaError``
_CUDA_ERROR = 1


class Member(NamedTuple):
    """State of a member, as a communicator knows it."""

    pid: int
    is_member: bool
    #: Calls of each kind, in the order of COUNTED.
    counts: list[int]
    #: ``ncclResult_t``
    async_error: int
    aborted: bool


class Communicator:
    """One member's end of it.  ``queue`` is served by the device, first in first out."""

    def __init__(self, segment: Segment, rank: int) -> None:
        self.rank = rank
        self.size = segment.size
        self._segment = segment
        self._peers: list[PeerWakeup | None] = []
        self._state = segment.state_of(rank)
        self.queue: deque[DeviceOperation] = deque()
        self.rounds = Rounds(segment, rank, self._ring_all)
        self.aborted = False

    def refuse_if_aborted(self) -> None:
        """Raises what torch raises of a launch after the abort (``NCCLComm::getNcclComm``)."""
        if self.aborted:
            raise DistBackendError(f"NCCL communicator was aborted on rank {self.rank}.")

    def abort(self) -> None:
        """This member's operations end undone from now on, and its launches are refused."""
        self.aborted = True
        self._state[_ABORTED] = 1

    def leave(self) -> None:
        """This member has shut it down."""
        self._state[_LEFT] = 1

    def count(self, kind: int) -> None:
        """This member calls a kernel of a kind: 0 is a broadcast, and so on as in COUNTED."""
        self._state[kind] += 1

    def note_error(self) -> None:
        """Its device has failed."""
        self._state[_ERROR] = _CUDA_ERROR

    @property
    def has_left(self) -> bool:
        return bool(self._state[_LEFT])

    @property
    def identity(self) -> int:
        """Number of the communicator, the same for all its members."""
        return hash(tuple(self._segment.wakeups)) & 0xFFFFFFFFFFFFFFFF

    def member(self, rank: int) -> Member:
        state = self._segment.state_of(rank).tolist()
        return Member(
            self._segment.wakeups[3 * rank], not state[_LEFT], state[: len(COUNTED)],
            state[_ERROR], bool(state[_ABORTED]),
        )  # fmt: skip

    def place_of(self, pid: int) -> int | None:
        """The member whose device is that of a process."""
        members = range(self.size)
        return next((one for one in members if self._segment.wakeups[3 * one] == pid), None)

    def _ring_all(self) -> None:
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

    def join(self, wakeup: Wakeup, known: dict[Address, PeerWakeup], until: float) -> None:
        """Returns when all members have joined; raises EmulationError when it is too late."""
        segment, me = self._segment, self.rank
        segment.wakeups[3 * me : 3 * me + 3] = memoryview(
            b"".join(word.to_bytes(8, "little") for word in wakeup.address)
        ).cast("Q")
        segment.joined[me] = 1
        while not all(segment.joined):
            if time.monotonic() > until:
                late = [str(r) for r in range(self.size) if not segment.joined[r]]
                raise EmulationError(
                    f"rank {', '.join(late)} of the group did not join the communicator in time."
                )
            _pause()
        for member in range(self.size):
            address = Address(*segment.wakeups[3 * member : 3 * member + 3])
            if member == me:
                self._peers.append(None)
                continue
            if address not in known:
                known[address] = PeerWakeup(address)
            self._peers.append(known[address])


#: NCCL's hosts ask in C++, where no recorder sees it: what watches polls has yet to wrap this.
_CHECK = Store.check


def has_keys(store: Store, keys: list[str]) -> bool:
    """True if a store has all keys; does not look like a poll of the script's."""
    return bool(_CHECK(store, keys))


#: Set when the process ends: a thread in C++ would abort it.
_ENDING = threading.Event()


def give_up_connecting() -> None:
    """Has all threads that connect raise, as the process ends."""
    _ENDING.set()


def _pause() -> None:
    if _ENDING.is_set():
        raise EmulationError("the process ended before the communicator was made.")
    time.sleep(PACE_S)


def connect(
    store: Store,
    key: str,
    rank: int,
    size: int,
    wakeup: Wakeup,
    known: dict[Address, PeerWakeup],
    timeout: timedelta,
) -> Communicator:
    """A communicator of all who ask ``store`` for ``key``; blocks until they have."""
    until = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        segment, descriptor = Segment.create(size)
        store.set(key, f"{os.getpid()}:{descriptor}")
    else:
        while not has_keys(store, [key]):
            if time.monotonic() > until:
                raise EmulationError(
                    f"rank 0 of the group did not make the communicator {key} in time."
                )
            _pause()
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
    communicator.join(wakeup, known, until)
    os.close(descriptor)
    return communicator
