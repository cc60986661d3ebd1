"""Communicators of one group: those that are made at an operation, with the group, or by a split.

After ``initNCCLComm``, ``eagerConnectSingleDevice``, ``useNonblocking``, ``performNocolorSplit``
and ``split`` of torch's ProcessGroupNCCL.cpp (2.7 and later), and NCCL's user guide, "Creating a
communicator from an existing one": every rank of the parent calls ``ncclCommSplit``, which is a
collective of its hosts; who is in no new communicator says ``NCCL_SPLIT_NOCOLOR``.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from datetime import timedelta

import torch
from torch.distributed import DistBackendError, Store

from hanglab.harness.nccl_emulated.communicator import (
    PACE_S,
    Communicator,
    connect,
    give_up_connecting,
    has_keys,
)
from hanglab.harness.nccl_emulated.device import current_device
from hanglab.harness.nccl_emulated.settings import EmulationError

#: ``NCCL_SPLIT_NOCOLOR``
NO_COLOR = -1
#: ``kBackendDefaultTimeout``, by which communicators have to be there that nobody waits for.
_READY_S = 30 * 60
#: For a thread that connects to end with the process, in seconds.
_STOP_S = 10.0


class _Connecting:
    """A communicator that is being made while its host goes on (``ncclInProgress``)."""

    def __init__(self, connections: Connections, key: str) -> None:
        self._made: Communicator | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._connect, args=(connections, key), name="hanglab-connect", daemon=True
        )
        self._thread.start()
        self._process = os.getpid()
        atexit.register(self._stop)

    def _stop(self) -> None:
        """Ends the thread before the interpreter does: in a call to the store it would abort."""
        if os.getpid() == self._process:
            give_up_connecting()
            self._thread.join(_STOP_S)

    def _connect(self, connections: Connections, key: str) -> None:
        try:
            self._made = connections.connect(key, connections.rank, connections.size)
        except Exception as error:
            self._error = error

    def ready(self) -> Communicator:
        """Blocks until it is made; raises what NCCL's hosts meet."""
        self._thread.join(float(os.environ.get("TORCH_NCCL_NONBLOCKING_TIMEOUT") or _READY_S))
        if self._error is not None:
            raise self._error
        if self._made is None:
            raise DistBackendError(
                "NCCL timeout when waiting for nonblocking call to become successful."
            )
        return self._made


class Connections:
    """One member's.  ``timeout`` is the group's."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self._store = store
        self._device = current_device()
        #: By the number of the device, or by the pair of ranks.
        self.made: dict[int | str, Communicator] = {}
        self._connecting: dict[int | str, _Connecting] = {}
        self._calls = 0
        #: Splits that this member has called, as ``comm_split_count`` counts them.
        self.splits = 0

    def own(self, device: int | None = None) -> Communicator:
        """That of this rank's device; another device gets another one, as in ``getNCCLComm``."""
        key = _own_device() if device is None else device
        found = self.made.get(key)
        if found is None:
            if key in self._connecting:
                found = self._connecting.pop(key).ready()
            else:
                found = self.connect(self._next_key(), self.rank, self.size)
            self.made[key] = found
        return found

    def make_at_once(self, parent: Connections | None, color: int) -> None:
        """Make the communicator with the group: by a split where there is a parent."""
        if parent is not None:
            split = parent.split(color, self.rank)
            assert split is not None
            self.made[_own_device()] = split
        elif os.environ.get("TORCH_NCCL_USE_COMM_NONBLOCKING", "0") in ("1", "true", "True"):
            self._connecting[_own_device()] = _Connecting(self, self._next_key())
        else:
            self.own()

    def pair(self, peer: int) -> Communicator:
        """The communicator of two ranks that messages outside of batches go through."""
        low, high = sorted((self.rank, peer))
        key = f"{low}:{high}"
        if key not in self.made:
            place = int(self.rank == high)
            self.made[key] = self.connect(f"nccl_emulated/{key}", place, 2)
        return self.made[key]

    def split(self, color: int, place: int) -> Communicator | None:
        """``ncclCommSplit``: blocks until every member has called its next split.

        Who called the same color is in the same new communicator, in the order of ``place``.
        """
        self.own()  # the parent has to be there
        folder = f"nccl_emulated/split/{self.splits}"
        self.splits += 1
        until = time.monotonic() + self.timeout.total_seconds()
        self._store.set(f"{folder}/{self.rank}", f"{color}:{place}")
        keys = [f"{folder}/{member}" for member in range(self.size)]
        while not has_keys(self._store, keys):
            if time.monotonic() > until:
                late = [str(m) for m, key in enumerate(keys) if not has_keys(self._store, [key])]
                raise EmulationError(
                    f"rank {', '.join(late)} of the parent did not call ncclCommSplit in time.",
                    "Every rank of the default group calls new_group, members or not.",
                )
            time.sleep(PACE_S)
        if color == NO_COLOR:
            return None
        said = [self._store.get(key).decode().partition(":") for key in keys]
        members = sorted(
            (int(theirs), member)
            for member, (their_color, _, theirs) in enumerate(said)
            if int(their_color) == color
        )
        mine = members.index((place, self.rank))
        return self.connect(f"{folder}/color/{color}", mine, len(members))

    def connect(self, key: str, rank: int, size: int) -> Communicator:
        device = self._device
        made = connect(self._store, key, rank, size, device.wakeup, device.peers, self.timeout)
        device.add(made)
        return made

    def _next_key(self) -> str:
        self._calls += 1
        return f"nccl_emulated/{self._calls - 1}"


def _own_device() -> int:
    """The number of the device that the rank has chosen, as torch.cuda tells it."""
    try:
        return int(torch._C._cuda_getDevice())
    except Exception:  # no CUDA, and none emulated
        return 0
