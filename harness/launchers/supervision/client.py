"""hanglab's side of a root supervisor: starting, jobs, doing without it when it dies."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hanglab.harness.launchers.protocol import LaunchError
from hanglab.harness.launchers.supervision.channel import (
    ChannelClosed,
    MessageChannel,
    hand_over,
    readable,
    shut_down,
)
from hanglab.harness.launchers.supervision.root import READY

#: For a root supervisor to import what it needs, on a slow disk and a busy machine.
_READY_S = 180.0
#: For a root supervisor to see to all its jobs' ends.
_CLOSE_S = 30.0
#: AF_UNIX paths below it must stay under 108 bytes.
_LONGEST_TEMPORARY = 60


class RootSupervisorFailed(LaunchError):
    """The process that starts ranks did not come up or does not answer."""

    advice = "Run `hanglab doctor`; its last lines of output are above."


class RootLost(RootSupervisorFailed):
    """It had come up and has ended since."""


class RootSupervisorClient:
    """One root supervisor and the socket that hands it jobs.  Safe to share among threads."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts the process and does not wait for it."""
        self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = tempfile.TemporaryFile()
        self._lock = threading.Lock()
        self._ready = False
        with far:
            self._process = subprocess.Popen(
                [*command, str(far.fileno())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=[far.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        """True if it takes jobs, or will."""
        if self._ready and readable(self._control, timeout=0):
            return False  # the end of the stream: after READY it never says anything
        return self._process.poll() is None

    def adopt(self, runtime_dir: Path) -> MessageChannel:
        """Has a supervisor forked; returns the channel to it.

        Raises :class:`RootSupervisorFailed`, or :class:`RootLost` where another might do.
        """
        with self._lock:
            self._wait_until_ready()
            near, far = socket.socketpair()
            with far:
                try:
                    hand_over(self._control, {"runtime_dir": str(runtime_dir)}, far.fileno())
                except ChannelClosed:
                    near.close()
                    self.kill()
                    raise self._failure(RootLost, "ended") from None
        return MessageChannel(near)

    def _wait_until_ready(self) -> None:
        if self._ready:
            return
        if not readable(self._control, timeout=_READY_S):
            self.kill()
            raise self._failure(RootSupervisorFailed, f"was not ready after {_READY_S:.0f} s")
        if self._control.recv(len(READY)) != READY:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            raise self._failure(RootSupervisorFailed, "ended before it was ready")
        self._ready = True

    def _failure(self, kind: type[RootSupervisorFailed], what: str) -> RootSupervisorFailed:
        text = ""
        if not self._output.closed:
            self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 4096))
            text = self._output.read().decode(errors="replace").strip()
        status = self._process.poll()
        ending = "" if status is None else f" (status {status})"
        return kind(f"the process that starts ranks {what}{ending}\n{text}".rstrip())

    def kill(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)

    def close(self) -> None:
        """Ends the process, and with it every job that it has; waits for that."""
        # First, so that a thread that waits for the process holds the lock no longer.
        shut_down(self._control)
        with self._lock:
            try:
                self._process.wait(_CLOSE_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._control.close()
            self._output.close()


def new_runtime_dir() -> Path:
    """A short name that nobody uses; the supervisor makes the folder and removes it."""
    folder = tempfile.gettempdir()
    if len(folder) > _LONGEST_TEMPORARY:
        folder = "/tmp"
    return Path(folder, f"hanglab-{secrets.token_hex(4)}")
