"""The process that watches one job: it reports how ranks end, and ends whatever is left.

It is a child of a root supervisor (see :mod:`hanglab.harness.launchers.supervision.root`) and
a subreaper.  It ends the job when it is told to, when hanglab is gone, when it
gets SIGTERM, and some time after the job's deadline, whichever comes first.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from hanglab.harness.launchers.supervision import leftovers
from hanglab.harness.launchers.supervision.channel import (
    ChannelClosed,
    Message,
    MessageChannel,
    readable,
)
from hanglab.harness.launchers.supervision.descendants import (
    ChildSignal,
    become_subreaper,
    end_below,
    freeze_below,
    is_janitor,
    reap,
    watch_process,
)

#: For the first message of hanglab, which is under way when the supervisor is forked.
_ORDER_S = 30.0


class SupervisedRanks(Protocol):
    """The ranks of one job, as their supervisor sees them."""

    @property
    def interval_s(self) -> float | None:
        """Seconds between two calls of :meth:`look`, None if only ``watched`` counts."""

    def reaped(self, pid: int, status: int) -> Iterable[Message]:
        """Messages to hanglab about a child that has ended with this wait status."""

    def watched(self) -> Iterable[int]:
        """Descriptors that become readable when :meth:`look` has something to tell."""

    def look(self) -> Iterable[Message]:
        """Messages to hanglab by now, apart from those about children that ended."""


class Supervisor:
    """Watches one job from the moment its ranks are started."""

    def __init__(self, end: socket.socket, hanglab: int) -> None:
        os.setsid()
        become_subreaper()
        self._end = end
        self.channel = MessageChannel(end)
        # Beside the channel, which a process that hanglab forked may hold open.
        self._hanglab = watch_process(hanglab)
        self.woken = ChildSignal()
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._seen: set[int] = set()
        self._runtime: Path | None = None

    def order(self) -> Message:
        """The order of hanglab what to start.  Ends this process if there never is one."""
        try:
            order = self.channel.receive(_ORDER_S)
        except ChannelClosed:
            order = None
        if order is None:
            os._exit(1)
        self._runtime = Path(order["runtime_dir"])
        self._runtime.mkdir(mode=0o700)
        return order

    def release(self) -> None:
        """Lets go of everything; for a process forked off this one."""
        self.woken.close()
        self.channel.close()
        if self._hanglab is not None:
            os.close(self._hanglab)

    def tell(self, message: Message) -> None:
        try:
            self.channel.send(message)
        except ChannelClosed:
            pass  # the loop sees it too, and ends the job

    def tell_started(self, pids: dict[int, int]) -> None:
        self.tell({"event": "started", "supervisor": os.getpid(), "pids": pids})

    def watch(self, ranks: SupervisedRanks, seconds: float) -> None:
        """Reports until the job is to be ended."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if left <= 0:
                self.tell({"event": "overdue"})
                return
            timeout = left if ranks.interval_s is None else min(left, ranks.interval_s)
            ready = readable(
                self.channel, self.woken, self._hanglab, *ranks.watched(), timeout=timeout
            )
            # Before the children, so that those are seen that somebody else reaps.
            for message in ranks.look():
                self.tell(message)
            if self.woken.fileno() in ready:
                if signal.SIGTERM in self.woken.drain():
                    return
                self.collect(ranks)
            if self._hanglab in ready:
                return
            if self.channel.fileno() in ready and self._told_to_end():
                return

    def collect(self, ranks: SupervisedRanks) -> None:
        def reaped(pid: int, status: int) -> None:
            self._seen.add(pid)
            for message in ranks.reaped(pid, status):
                self.tell(message)

        reap(reaped)

    def _told_to_end(self) -> bool:
        try:
            message = self.channel.receive(0)
        except ChannelClosed:
            return True
        return message is not None and message.get("command") == "end"

    def finish(self, ranks: SupervisedRanks | None = None) -> None:
        """Ends every descendant, removes what the job left, says so.  Does not return.

        Tells of the ranks that ended by themselves after all, too.
        """

        def reaped(pid: int, status: int) -> None:
            self._seen.add(pid)
            if ranks is not None:
                self._tell_exits(ranks.reaped(pid, status))

        def killed(pid: int, status: int) -> None:
            # With a status of its own it was on its way out already.
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                self._seen.add(pid)
            else:
                reaped(pid, status)

        if ranks is not None:
            self._tell_exits(ranks.look())
        reap(reaped)
        below = freeze_below()
        self._seen.update(below)
        segments = leftovers.shared_memory_of(pid for pid in below if not is_janitor(pid))
        left = end_below(killed, self.woken)
        leftovers.remove_shared_memory(segments, self._seen)
        if self._runtime is not None:
            leftovers.remove_tree(self._runtime)
        self.tell({"event": "ended", "left": left})
        os._exit(0)

    def _tell_exits(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message["event"] == "exit":
                self.tell(message)

    def fail(self, error: BaseException) -> None:
        """Tells hanglab that the job could not be started, and ends it.  Does not return."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        print(text, file=sys.stderr, flush=True)
        self.tell({"event": "failed", "error": f"{type(error).__name__}: {error}"})
        self.finish()


def decode_status(status: int) -> tuple[int | None, int | None]:
    """Exit code and signal out of a wait status; one of them is None."""
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None
