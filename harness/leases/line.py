"""The line of those who wait for a kind of lease: first come, first served.

Whoever waits holds the lock on a ticket of his own.  A ticket that nobody
holds belonged to a process that died; the next who looks removes it.  All is
done while holding the turnstile, a lock that is held for moments only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from hanglab.harness.leases.locks import Lock, locked, try_lock


class Ticket:
    def __init__(self, number: int, lock: Lock) -> None:
        self.number = number
        self._lock = lock

    def tear(self) -> None:
        """Leaves the line; to be called within the turnstile."""
        self._lock.path.unlink(missing_ok=True)
        self._lock.release()


class LeaseQueue:
    """The line for one kind of lease.  Its methods raise OSError."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self._kind = kind

    def turnstile(self) -> AbstractContextManager[None]:
        """Let one process at a time within, where everything below happens."""
        return locked(self._folder / f"{self._kind}.turnstile")

    def join(self) -> Ticket:
        number = max((number for number, _ in self._tickets()), default=0) + 1
        lock = try_lock(self._folder / f"{self._kind}.{number:08d}.ticket")
        assert lock is not None, "a new number has no ticket yet"
        return Ticket(number, lock)

    def ahead_of(self, ticket: Ticket) -> int:
        """Number of living holders of tickets that came before."""
        ahead = 0
        for number, path in self._tickets():
            if number >= ticket.number:
                continue
            left = try_lock(path)
            if left is None:
                ahead += 1
            else:
                path.unlink(missing_ok=True)
                left.release()
        return ahead

    def _tickets(self) -> Iterator[tuple[int, Path]]:
        for path in self._folder.glob(f"{self._kind}.*.ticket"):
            with contextlib.suppress(ValueError):
                yield int(path.name.split(".")[-2]), path
