"""A running job, seen through the channel to its supervisor."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hanglab.harness.hosts import ThisMachine
from hanglab.harness.launchers.environment import own_dumps_options
from hanglab.harness.launchers.protocol import (
    JobPlan,
    LaunchError,
    RankExit,
    RemainsLeft,
    SupervisorLost,
    SupervisorSilent,
)
from hanglab.harness.launchers.supervision.agent_process import Agent
from hanglab.harness.launchers.supervision.channel import ChannelClosed, Message, MessageChannel
from hanglab.harness.launchers.supervision.descendants import watch_process
from hanglab.harness.launchers.supervision.leftovers import remove_tree

#: For a supervisor to start all ranks.
_START_S = 60.0
#: For a supervisor to end everything: longer than it takes to give up on a process.
_END_S = 30.0
#: For a root supervisor to clear up behind a supervisor that was killed.
_CLEAR_S = 30.0


class SupervisedJob:
    """Implements :class:`~hanglab.harness.launchers.protocol.RunningJob`."""

    injects = False

    def __init__(self, plan: JobPlan, runtime_dir: Path, channel: MessageChannel) -> None:
        self._plan = plan
        self._runtime_dir = runtime_dir
        self._channel = channel
        self._pids: dict[int, int] = {}
        self._exits: list[RankExit] = []
        self._running = set(range(plan.world_size))
        self._supervisor: int | None = None
        #: The supervisor's last words have come.
        self._ended = False
        #: The channel is at its end: supervisor and root supervisor have let go of the job.
        self._gone = False
        self._failure: str | None = None
        self._left: list[int] = []
        self._lock = threading.RLock()

    @property
    def runtime_dir(self) -> Path:
        return self._runtime_dir

    @property
    def pids(self) -> Mapping[int, int]:
        if self._lock.acquire(blocking=False):
            try:
                self._catch_up()
            finally:
                self._lock.release()
        return self._pids

    def begin(self, order: Message) -> None:
        """Sends the order and waits until the supervisor has carried it out.

        Raises :class:`SupervisorLost`, :class:`SupervisorSilent` (the job then is
        still to be ended) or another :class:`LaunchError`.
        """
        with self._lock:
            with suppress(ChannelClosed):  # receiving says why
                self._channel.send(order)
            until = time.monotonic() + _START_S
            while self._supervisor is None and not self._gone and self._failure is None:
                if not self._receive(until - time.monotonic()):
                    raise SupervisorSilent(f"the job was not started within {_START_S:.0f} s")
            if self._failure is not None:
                self.end()
                raise LaunchError(self._failure)
            if self._gone:
                raise SupervisorLost("the job's supervisor ended before it had started the ranks")

    @property
    def hosts(self) -> ThisMachine:
        return ThisMachine(self._pids)

    def record(self, hang_after_s: float) -> Agent:
        plan = self._plan
        return Agent(
            plan.case_dir,
            self._runtime_dir,
            world_size=plan.world_size,
            hang_after_s=hang_after_s,
            log=plan.agent_log,
            options=own_dumps_options(plan.log_dir, self._runtime_dir),
        )

    def events(self, timeout: float) -> list[RankExit]:
        with self._lock:
            until = time.monotonic() + timeout
            while not (self._exits or self._gone or self._ended or self._failure):
                if not self._receive(until - time.monotonic()):
                    break
            self._catch_up()
            exits, self._exits = self._exits, []
            if not exits and self._failure is not None:
                raise LaunchError(self._failure)
            if not exits and self._gone and not self._ended:
                raise SupervisorLost("the job's supervisor was ended from outside")
            return exits

    def alive(self) -> bool:
        return bool(self._running) and not (self._gone or self._ended or self._failure)

    def end(self) -> None:
        with self._lock:
            if not self._gone:
                with suppress(ChannelClosed):
                    self._channel.send({"command": "end"})
                if not self._drain(_END_S):
                    self._kill_supervisor()
                    self._drain(_CLEAR_S)
                self._let_go()
            if self._left:
                left, self._left = self._left, []
                raise RemainsLeft(f"processes that would not end: {left}")

    def _catch_up(self) -> None:
        while not self._gone and self._receive(0):
            pass

    def _drain(self, seconds: float) -> bool:
        """Receives until the end of the channel; False if that did not come in time."""
        until = time.monotonic() + seconds
        while not self._gone:
            if not self._receive(until - time.monotonic()):
                return False
        return True

    def _kill_supervisor(self) -> None:
        if self._supervisor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._supervisor, signal.SIGKILL)

    def _let_go(self) -> None:
        self._gone = True
        self._channel.hang_up()
        if self._supervisor is not None:
            os.close(self._supervisor)
            self._supervisor = None
        # Long done, unless both supervisor and root supervisor were killed.
        if self._runtime_dir.exists():
            remove_tree(self._runtime_dir)

    def _receive(self, timeout: float) -> bool:
        """Takes in one message or the end of the channel; False if neither came in time."""
        try:
            message = self._channel.receive(max(0.0, timeout))
        except ChannelClosed:
            self._let_go()
            return True
        if message is None:
            return False
        self._take(message)
        return True

    def _take(self, message: Message) -> None:
        kind = message["event"]
        if kind == "started":
            self._supervisor = watch_process(message["supervisor"])
            self._pids.update({int(rank): pid for rank, pid in message["pids"].items()})
        elif kind == "rank":
            self._pids[message["rank"]] = message["pid"]
        elif kind == "exit":
            rank = message["rank"]
            self._running.discard(rank)
            stderr = self._plan.log_dir / f"rank{rank}.err"
            self._exits.append(RankExit(rank, message["code"], message["signal"], stderr))
        elif kind == "failed":
            self._failure = f"the ranks could not be started: {message['error']}"
        elif kind == "overdue":
            self._failure = "the job ran far past its deadline, so its supervisor ended it"
        elif kind == "ended":
            self._ended = True
            self._left = message["left"]
