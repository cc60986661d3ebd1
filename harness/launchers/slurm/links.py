"""hanglab's ends of the channels to its processes on nodes, each through an ``srun`` of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from hanglab.harness.launchers.nodes.remote_job import Taken
from hanglab.harness.launchers.slurm.commands import own_environment, said_by_step, step_command
from hanglab.harness.launchers.slurm.errors import NodeFailed
from hanglab.harness.launchers.supervision.channel import ChannelClosed, Message, MessageChannel

#: For an srun whose node has ended, or was told to.
_END_S = 20.0


class StepLinks:
    """Implements :class:`~hanglab.harness.launchers.nodes.remote_job.NodeLinks`.

    Safe to share among threads.
    """

    def __init__(self, taken: Taken) -> None:
        self._taken = taken
        self._channels: dict[int, MessageChannel] = {}
        self._steps: dict[int, subprocess.Popen[bytes]] = {}
        self._words: dict[int, IO[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self, number: int, job: str, node: str, command: Sequence[str]) -> None:
        """Runs a command as a step on one node.  Raises NodeFailed, NoSlurm."""
        near, far = socket.socketpair()
        with far:
            self._words[number] = tempfile.TemporaryFile()
            try:
                self._steps[number] = subprocess.Popen(
                    step_command(job, node, command),
                    env=own_environment(),
                    stdin=far.fileno(),
                    stdout=far.fileno(),
                    stderr=self._words[number],
                    # Ctrl-C in a terminal is for hanglab, which ends the job in order.
                    start_new_session=True,
                )
            except OSError as error:
                near.close()
                raise NodeFailed(f"srun cannot be run: {error.strerror}.") from error
        self._channels[number] = MessageChannel(near)
        thread = threading.Thread(
            target=self._listen, args=(number,), name=f"hanglab-node{number}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def send(self, number: int, message: Message) -> bool:
        """False where the node cannot be reached any more."""
        with self._lock:
            channel = self._channels.get(number)
            if channel is None:
                return False
            try:
                channel.send(message)
            except ChannelClosed:
                return False
            return True

    def words_of(self, number: int) -> str:
        """The last that a node's srun, or what ran there, said of an error."""
        file = self._words[number]
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        return said_by_step(file.read())

    def close(self) -> None:
        """Lets go of all nodes, which then end; waits for that."""
        with self._lock:
            channels = list(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.hang_up()
        for step in self._steps.values():
            try:
                step.wait(_END_S)
            except subprocess.TimeoutExpired:
                step.kill()
                step.wait()
        for thread in self._threads:
            thread.join()
        for file in self._words.values():
            file.close()

    def _listen(self, number: int) -> None:
        channel = self._channels[number]
        while True:
            try:
                message = channel.receive(3600.0)
            except (ChannelClosed, ValueError, OSError):
                break
            if message is not None:
                self._taken(number, message)
        with self._lock, suppress(KeyError):
            self._channels.pop(number).hang_up()
        self._taken(number, None)
