"""The other ranks: their windows, and which of them do not answer."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hanglab.recorder.straggler import exchange
from hanglab.recorder.straggler.exchange_thread import ExchangeTask, ExchangeThread
from hanglab.recorder.straggler.reporting import Missing
from hanglab.recorder.straggler.window import TimingWindow, WaitState

#: Seconds that the store gets to answer what needs no other rank.
BRIEFLY_S = 0.25
#: Seconds that a rank waits, once, for the interval that rank 0 published four steps ago: who does
#: not know it takes no part in the first reports.  Not measured: two looks of the exchange at
#: its slowest take less than a second, and a crowded machine may take several times as long.
LAST_CHANCE_S = 10.0
_UNREADABLE = (ValueError, TypeError, KeyError)


@dataclass(frozen=True)
class PeerWindows:
    """Windows of other ranks that belong to the present report, and who sent none."""

    world_size: int
    windows: Mapping[int, TimingWindow] = field(default_factory=dict)
    missing: Mapping[int, Missing] = field(default_factory=dict)
    nodes: Mapping[int, str] = field(default_factory=dict)


class Peers:
    """Publishes this rank's windows and reads those of the others.

    Where not ``exchanging``, it does neither and needs no thread but for watching.  Where
    ``gathering``, rank 0 alone reads windows.  Where ``agreeing``, the interval is told by a
    collective.
    ``beat()`` is called twice a second by the thread.
    """

    def __init__(
        self,
        prefix: str,
        folder: str | os.PathLike[str] | None,
        exchanging: bool,
        gathering: bool,
        agreeing: bool,
        beat: Callable[[], None],
    ) -> None:
        self._prefix = prefix
        self._folder = folder
        self._exchanging = exchanging
        self._gathering = gathering
        self._agreeing = agreeing
        self._beat = beat
        self._exchange_thread: ExchangeThread | None = None
        self._pid = os.getpid()
        #: Rank -> number of its latest window, and when it came, on the monotonic clock.
        self._latest: dict[int, tuple[int, float]] = {}
        self._nodes: dict[int, str] = {}
        self._began = time.monotonic()
        #: Ranks that were missing last time: nobody waits for them again.
        self._given_up: set[int] = set()
        self._interval: ExchangeTask | None = None
        if exchanging:
            self._carrier()

    def publish(self, window: TimingWindow, unasked: bool) -> TimingWindow:
        """Publish a window, under this process's rank, which it gets hereby.

        One that nobody asked for is not: the job's own window is still to come.  Nor is one
        that nobody will read.
        """
        rank, size = exchange.rank_and_size()
        window = replace(window, rank=rank)
        read = rank != 0 or not self._gathering
        if self._exchanging and size > 1 and read and not unasked:
            self._carrier().publish(f"window/{rank}", _packed(window))
        return window

    def collect_windows(self, own: TimingWindow, patience_s: float) -> PeerWindows:
        """The others' windows of the same number, waited for as long as that at most.

        A rank that was missing last time is not waited for.
        """
        rank, size = exchange.rank_and_size()
        if not self._exchanging or size == 1:
            return PeerWindows(size)
        others = [other for other in range(size) if other != rank]
        found = self._read_windows(
            [r for r in others if r not in self._given_up], own.number, patience_s
        )
        found.update(
            self._read_windows([r for r in others if r in self._given_up], own.number, 0.0)
        )
        missing = {}
        for other in others:
            window = found.get(other)
            if window is not None:
                self._nodes[other] = window.node
                if window.number > self._latest.get(other, (0, 0.0))[0]:
                    self._latest[other] = window.number, time.monotonic()
            if window is None or window.number < own.number:
                missing[other] = self._missing(other)
        self._given_up = set(missing)
        if missing:
            for other, standing in self._standings(missing).items():
                missing[other] = replace(missing[other], standing=standing)
                self._nodes[other] = standing.node
        return PeerWindows(
            size,
            {r: w for r, w in found.items() if r not in missing},
            missing,
            dict(self._nodes),
        )

    def _read_windows(
        self, ranks: list[int], number: int, patience_s: float
    ) -> dict[int, TimingWindow]:
        found: dict[int, TimingWindow] = {}
        earlier: dict[int, bytes] = {}
        if not ranks:
            return found

        def accept(key: str, data: bytes) -> bool:
            rank = int(key.rpartition("/")[2])
            if _number(data) < number:
                # Looked at again and again until the next one comes: not to be unpacked yet.
                earlier[rank] = data
                return False
            window = _unpacked(data)
            if window is not None:
                found[rank] = window
            return True

        keys = [f"window/{rank}" for rank in ranks]
        # A look without patience still takes the store some time to answer.
        self._carrier().gather(keys, accept, patience_s).wait(max(patience_s, BRIEFLY_S))
        whole = dict(found)
        for rank, data in dict(earlier).items():
            window = None if rank in whole else _unpacked(data)
            if window is not None:
                whole[rank] = window
        return whole

    def _missing(self, rank: int) -> Missing:
        number, came = self._latest.get(rank, (0, self._began))
        return Missing(rank, time.monotonic() - came, number)

    def publish_standing(self, standing: WaitState) -> None:
        """Publish where this rank stands, since its sections no longer move."""
        rank, size = exchange.rank_and_size()
        if self._exchanging and size > 1:
            self._carrier().publish(f"standing/{rank}", replace(standing, rank=rank).to_json())

    def await_standings(self, patience_s: float) -> None:
        """Wait until every rank has said where it stands, where this one reports on them."""
        rank, size = exchange.rank_and_size()
        if self._exchanging and size > 1 and (rank == 0 or not self._gathering):
            self._standings([other for other in range(size) if other != rank], patience_s)

    def collect_standings(self, own: WaitState) -> PeerWindows:
        """Collect, of a job that stands, the latest windows and the ranks that the others wait for.

        Those are the ones that do not wait for other ranks themselves, and those
        that do not say where they stand.
        """
        rank, size = exchange.rank_and_size()
        if not self._exchanging or size == 1:
            return PeerWindows(size)
        others = [other for other in range(size) if other != rank]
        windows = self._read_windows(others, 0, 0.0)
        standings = {rank: replace(own, rank=rank), **self._standings(others)}
        missing = {}
        if any(s.communicating_s is not None for s in standings.values()):
            for other in range(size):
                standing = standings.get(other)
                if standing is None or standing.communicating_s is None:
                    missing[other] = replace(self._missing(other), standing=standing)
        self._nodes.update((r, s.node) for r, s in standings.items())
        return PeerWindows(size, windows, missing, dict(self._nodes))

    def _standings(self, ranks: Iterable[int], patience_s: float = 0.0) -> dict[int, WaitState]:
        told = {}

        def accept(key: str, data: bytes) -> bool:
            rank = int(key.rpartition("/")[2])
            with contextlib.suppress(*_UNREADABLE):
                standing = WaitState.from_json(data)
                # One from before its latest window is about an earlier stand.
                if standing.windows >= self._latest.get(rank, (0, 0.0))[0]:
                    told[rank] = standing
                    return True
            return False

        keys = [f"standing/{rank}" for rank in ranks]
        self._carrier().gather(keys, accept, patience_s).wait(max(patience_s, BRIEFLY_S))
        return dict(told)

    def agree_on_interval(self, own: int, last_chance: bool) -> int | None:
        """Rank 0's number of steps between reports; None while it is not known.

        Where the ranks exchange nothing each goes by its own.
        """
        rank, size = exchange.rank_and_size()
        if size == 1 or not (self._exchanging or self._agreeing):
            return own
        if self._agreeing:
            # Who is told late would leave the others alone in the collective that follows a report.
            return exchange.told_by_rank0(own) if last_chance else None
        if rank == 0:
            self._carrier().publish("interval", str(own).encode())
            return own
        if self._interval is None:
            self._interval = self._carrier().gather(["interval"], lambda key, data: True, 30.0)
        found = self._interval.wait(LAST_CHANCE_S if last_chance else 0.0)
        value = found.get("interval", b"")
        if value.isdigit():
            return int(value)
        if self._interval.done.is_set():
            self._interval = None
        return None

    def warnings(self) -> list[str]:
        problem = self._exchange_thread.problem if self._exchange_thread is not None else ""
        return [f"windows cannot be exchanged: {problem}"] if problem else []

    def close(self) -> None:
        if self._exchange_thread is not None and self._pid == os.getpid():
            self._exchange_thread.stop()

    def _carrier(self) -> ExchangeThread:
        if self._exchange_thread is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._exchange_thread = ExchangeThread(self._connect, self._beat)
        return self._exchange_thread

    def _connect(self) -> exchange.Exchange | None:
        return exchange.of_job(self._prefix, self._folder)


# Parcels hold numpy's arrays, which has no place in the import of a recorder.


def _packed(window: TimingWindow) -> bytes:
    from hanglab.recorder.straggler import window_encoding

    return window_encoding.pack(window)


def _number(data: bytes) -> float:
    """Number of a window; infinite where it says none, so that nobody waits for a better one."""
    from hanglab.recorder.straggler import window_encoding

    try:
        return window_encoding.number_of(data)
    except _UNREADABLE:
        return math.inf


def _unpacked(data: bytes) -> TimingWindow | None:
    from hanglab.recorder.straggler import window_encoding

    try:
        return window_encoding.unpack(data)
    except _UNREADABLE:
        return None
