"""Things of one kind that jobs hold while they run: waited for in line, freed by any end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hanglab.harness.errors import HanglabError
from hanglab.harness.leases.line import LeaseQueue
from hanglab.harness.leases.locks import Lock, describe_holder, try_lock

#: Pause between two looks for something free, in seconds.
POLL_S = 0.05

#: Of the things that are free, picks as many as are wanted; None where they do not do.
Choice = Callable[[Sequence[str], int], Sequence[str] | None]
Tell = Callable[[str], None]
Held = list[tuple[str, Lock]]


class PoolTooSmall(HanglabError):
    """More was asked for than the pool ever has."""

    advice = "Ask for less, or give the pool more."


@dataclass(frozen=True)
class ResourceKind:
    """A kind of resource: a word for file names, and the words for one and for many."""

    name: str
    one: str
    many: str

    def count(self, number: int) -> str:
        return f"{number} {self.one if number == 1 else self.many}"


def take_first(free: Sequence[str], count: int) -> Sequence[str] | None:
    return free[:count] if len(free) >= count else None


class LeasePool:
    """All things of a kind on this machine, as far as this process may use them.

    ``names`` are the things; two processes that mean the same thing must call
    it the same.  ``choose`` sees what is free.
    """

    def __init__(
        self, folder: Path, kind: ResourceKind, names: Sequence[str], choose: Choice = take_first
    ) -> None:
        self.names = tuple(names)
        self._folder = folder
        self._kind = kind
        self._choose = choose
        self._line = LeaseQueue(folder, kind.name)

    @contextlib.contextmanager
    def lease(
        self,
        count: int,
        stop: threading.Event,
        tell: Tell = lambda reason: None,
        purpose: str = "",
    ) -> Iterator[tuple[str, ...] | None]:
        """Holds ``count`` things and gives their names; None where ``stop`` was set before.

        ``tell`` hears what is waited for, again whenever that changes.  Raises
        PoolTooSmall, and OSError.
        """
        if count > len(self.names):
            raise PoolTooSmall(
                f"{self._kind.count(count)} asked for, but the pool has {len(self.names)}"
            )
        held = self._wait(count, stop, tell, purpose) if count else []
        if held is None:
            yield None
            return
        try:
            yield tuple(name for name, _ in held)
        finally:
            for _, lock in held:
                lock.release()

    def _wait(self, count: int, stop: threading.Event, tell: Tell, purpose: str) -> Held | None:
        """The things with their locks; None where ``stop`` was set before."""
        if stop.is_set():
            return None
        with self._line.turnstile():
            ticket = self._line.join()
        told = ""
        try:
            while not stop.is_set():
                with self._line.turnstile():
                    ahead = self._line.ahead_of(ticket)
                    free, held = (0, None) if ahead else self._take(count, purpose)
                if held is not None:
                    return held
                reason = self._reason(count, ahead, free)
                if reason != told:
                    tell(reason)
                    told = reason
                stop.wait(POLL_S)
            return None
        finally:
            with self._line.turnstile():
                ticket.tear()

    def _take(self, count: int, purpose: str) -> tuple[int, Held | None]:
        """Number of free things, and the chosen ones with their locks if they suffice.

        Locks everything that is free, and lets go of what is not chosen.
        """
        free: dict[str, Lock] = {}
        held: Held = []
        try:
            for name in self.names:
                lock = try_lock(self._path(name))
                if lock is not None:
                    free[name] = lock
                if self._choose is take_first and len(free) == count:
                    break
            chosen = self._choose(list(free), count)
            if chosen is None:
                return len(free), None
            for name in chosen:
                free[name].sign(purpose)
            held = [(name, free[name]) for name in chosen]
            return len(free), held
        finally:
            kept = {name for name, _ in held}
            for name, lock in free.items():
                if name not in kept:
                    lock.release()

    def _reason(self, count: int, ahead: int, free: int) -> str:
        words = f"waiting for {self._kind.count(count)}"
        if ahead:
            return f"{words}: {ahead} ahead in line"
        if free:
            return f"{words}: {free} of {len(self.names)} free"
        holders = [describe_holder(self._path(name)) for name in self.names]
        shown = ", ".join(holders[:4]) + (", ..." if len(holders) > 4 else "")
        return f"{words}: held by {shown}"

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._kind.name}-{name}.lock"
