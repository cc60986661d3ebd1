"""Ranks that wait for each other besides operations: what, who waits, for whom, and the fault.

    hanglab run host_waits_program.py -- KIND WAITER PEER FAULT

KIND: tcp, unix, connection (of multiprocessing), store, waited (a store in which each key is
waited for and then read), prefixes (a store in which another
rank sets the same keys under another prefix), checked (a store that WAITER polls), or file:
WAITER polls for one.  At the fifth step PEER, with FAULT ``left_out``, leaves out what WAITER
waits for; with ``away`` it waits for an event before.  With ``chain`` a third rank is away that
PEER reads from; with ``early`` WAITER asks once too often, with ``unknown`` for what nobody ever
sends; with ``unwritten`` WAITER polls for a new content of an old file, with ``stale`` or
``locked`` for the end of a file, older than the job or of
now; and with ``none`` nothing is wrong.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.distributed as dist

STEP = 5
KIND, WAITER, PEER, FAULT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def shared(value: object, source: int) -> object:
    box = [value]
    dist.broadcast_object_list(box, src=source)
    return box[0]


class Link:
    """A way from one rank to another, opened by all ranks together."""

    def __init__(self, kind: str, receiver: int, sender: int) -> None:
        rank = dist.get_rank()
        self._end: socket.socket | Connection | None = None
        folder = Path(mkdtemp()) if rank == receiver else Path()
        if kind == "connection":
            listener = Listener(str(folder / "link"), "AF_UNIX") if rank == receiver else None
            address = str(shared(listener.address if listener else None, receiver))
            if listener is not None:
                self._end = listener.accept()
            elif rank == sender:
                self._end = Client(address, "AF_UNIX")
            return
        family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
        server = socket.socket(family)
        if rank == receiver:
            server.bind(str(folder / "link") if kind == "unix" else ("127.0.0.1", 0))
            server.listen()
        place = shared(server.getsockname() if rank == receiver else None, receiver)
        if rank == receiver:
            self._end = server.accept()[0]
        elif rank == sender:
            self._end = socket.socket(family)
            self._end.connect(place)

    def send(self, step: int) -> None:
        if isinstance(self._end, Connection):
            self._end.send(step)
        elif self._end is not None:
            self._end.sendall(b"12345678")

    def receive(self, step: int) -> None:
        if isinstance(self._end, Connection):
            self._end.recv()
        elif self._end is not None:
            self._end.recv(8)


class Keys:
    """The same by keys of the store."""

    def __init__(self, prefix: str = "") -> None:
        store = dist.distributed_c10d._get_default_store()
        self._store = dist.PrefixStore(prefix, store) if prefix else store

    def send(self, step: int) -> None:
        self._store.set(f"plan/{step}", "x")

    def receive(self, step: int) -> None:
        self._store.get(f"plan/{step}")


class CheckedKeys(Keys):
    """Keys that the receiver asks for again and again."""

    def receive(self, step: int) -> None:
        while not self._store.check([f"plan/{step}"]):
            time.sleep(0.01)


class WaitedKeys(Keys):
    """Keys that the receiver waits for, and reads then."""

    def receive(self, step: int) -> None:
        self._store.wait([f"plan/{step}"])
        super().receive(step)


class Files:
    """The same by files."""

    def __init__(self, receiver: int) -> None:
        self._folder = Path(str(shared(mkdtemp(), receiver)))

    def send(self, step: int) -> None:
        (self._folder / str(step)).touch()

    def receive(self, step: int) -> None:
        while not os.path.exists(self._folder / str(step)):
            time.sleep(0.01)

    def wait_for_content(self) -> None:
        """The same file is to be written again."""
        weights = self._folder / "weights"
        weights.touch()
        os.utime(weights, (time.time() - 86_400,) * 2)
        seen = weights.stat().st_mtime
        while os.path.getmtime(weights) == seen:
            time.sleep(0.01)

    def wait_for_end(self, step: int, age_s: int) -> None:
        lock = self._folder / "lock"
        lock.touch()
        os.utime(lock, (time.time() - age_s,) * 2)
        while lock.exists():
            time.sleep(0.01)


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    link: Link | Keys | Files
    if KIND == "checked":
        link = CheckedKeys()
    elif KIND == "waited":
        link = WaitedKeys()
    elif KIND == "file":
        link = Files(WAITER)
    elif KIND in ("store", "prefixes"):
        link = Keys("peer" if KIND == "prefixes" else "")
    else:
        link = Link(KIND, WAITER, PEER)
    same_keys = Keys("third")
    third = next(other for other in range(size) if other not in (WAITER, PEER))
    further = Link("tcp", PEER, third) if FAULT == "chain" else None
    for step in range(2 * STEP):
        dist.all_reduce(torch.ones(4))
        struck = step == STEP
        if struck and (FAULT, rank) in (("away", PEER), ("chain", third)):
            threading.Event().wait(600)
        if further is not None and rank == PEER:
            further.receive(step)
        if further is not None and rank == third:
            further.send(step)
        if KIND == "prefixes" and rank == third:
            same_keys.send(step)
        if rank == PEER and not (struck and FAULT == "left_out"):
            link.send(step)
        if struck and rank == WAITER and isinstance(link, Files) and FAULT == "unwritten":
            link.wait_for_content()
        if struck and rank == WAITER and isinstance(link, Files) and FAULT in ("stale", "locked"):
            link.wait_for_end(step, 86_400 if FAULT == "stale" else 0)
        if rank == WAITER:
            link.receive(1000 if struck and FAULT == "unknown" else step)
            if struck and FAULT == "early":
                link.receive(step + 1)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
