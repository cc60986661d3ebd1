"""A running job on nodes that say themselves when they are there, and let its faults strike."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from hanglab.harness.faults.host_fault import strikes_in
from hanglab.harness.hosts import ThisMachine
from hanglab.harness.launchers import protocol
from hanglab.harness.launchers.nodes.job import LOOK_S, NodesJob
from hanglab.harness.launchers.nodes.placement import placed
from hanglab.harness.launchers.protocol import JobPlan, LaunchError
from hanglab.harness.launchers.supervision.channel import Message

#: For nodes to start hanglab, and that its ranks, on a slow disk and a busy machine.
_READY_S = 180.0

#: Called with a node's number and what it says, or None at its end; from a thread of its own.
Taken = Callable[[int, Message | None], None]


class NodeLinks(Protocol):
    """Channels to hanglab's processes on nodes."""

    def send(self, number: int, message: Message) -> bool:
        """False where the node cannot be reached any more."""

    def words_of(self, number: int) -> str:
        """The last that a node, or what carries its channel, said of an error."""

    def close(self) -> None:
        """Lets go of all nodes, which then end; waits for that."""


class RemoteJob(NodesJob):
    """Base of jobs with one of ``nodes.remote_processes.RemoteProcesses`` a node.

    Implements what they share of :class:`~hanglab.harness.launchers.protocol.RunningJob`.
    """

    #: Faults strike on the nodes: the ranks' processes are theirs.
    injects = True

    def __init__(self, plan: JobPlan, links: Callable[[RemoteJob], NodeLinks]) -> None:
        super().__init__(plan, placed(plan.world_size, plan.nodes or 1))
        self.hello: dict[int, Message] = {}
        self.links = links(self)

    # What nodes of one kind or another do in their own way.

    def names(self) -> dict[int, str]:
        raise NotImplementedError

    def node_failed(self, words: str) -> LaunchError:
        """The error that a node's failure is."""
        raise NotImplementedError

    def asked_to_end(self) -> None:
        """A node has been asked to end from outside; ``changed`` is held."""

    # Starting.

    def task(self, number: int, folders: dict[str, str]) -> Message:
        """Order for a node; ``folders``: case, log, temporary and folder, as it sees them."""
        plan = self.plan
        own = [fault for fault in plan.faults if strikes_in(fault, plan.faulty)]
        faults = [(n, one) for n, one in enumerate(own) if one.rank in self.blocks[number]]
        return {
            "number": number,
            "ranks": list(self.blocks[number]),
            "world_size": plan.world_size,
            "script": os.path.abspath(plan.script),
            "function": plan.function,
            "arguments": list(plan.arguments),
            "wrap": [],
            "limit_s": plan.deadline_s + protocol.GRACE_S,
            **folders,
            "faults": base64.b64encode(pickle.dumps(faults)).decode(),
        }

    def await_nodes(self) -> None:
        """Until all nodes are there.  Raises LaunchError."""
        self._await(lambda: set(range(len(self.blocks))) - self.hello.keys())

    def await_ranks(self) -> None:
        """Until all ranks wait to begin.  Raises LaunchError."""
        ranks = [rank for block in self.blocks for rank in block]
        self._await(lambda: {self.node_of(rank) for rank in set(ranks) - self.inside.keys()})

    def _await(self, missing: Callable[[], set[int]]) -> None:
        until = time.monotonic() + _READY_S
        names = self.names()
        while True:
            with self.changed:
                left = missing()
                if not left and not self.gone and not self.failure:
                    return
                if not self.gone and not self.failure:
                    self.changed.wait(LOOK_S)
            if self.failure:
                raise self.node_failed(self.failure)
            if self.gone:
                number = min(self.gone)
                words = self.links.words_of(number) or "it said nothing"
                raise self.node_failed(f"Node {names[number]} ended early: {words}.")
            if self.plan.stop is not None and self.plan.stop.is_set():
                raise self.node_failed("hanglab was interrupted while nodes started.")
            if time.monotonic() > until:
                number = min(left)
                words = self.links.words_of(number) or "it said nothing"
                raise self.node_failed(
                    f"Node {names[number]} was not ready in {_READY_S:g} s: {words}."
                )

    # What the runner sees.

    def send(self, number: int, message: Message) -> bool:
        return self.links.send(number, message)

    @property
    def runtime_dir(self) -> Path:
        return self.plan.run_dir

    @property
    def hosts(self) -> ThisMachine:
        return ThisMachine({})

    @property
    def pids(self) -> dict[int, int]:
        """None: processes of nodes have no number on this host."""
        return {}

    # What nodes say.

    def heard(self, number: int, message: Message) -> None:
        event = message["event"]
        if event == "hello":
            self.hello[number] = message
        elif event == "asked_to_end":
            self.asked_to_end()
        elif event == "strikes" and self.plan.struck is not None:
            for index, found in message["strikes"].items():
                self.plan.struck(int(index), found)

    def settle(self, number: int) -> None:
        """A node is gone whom nobody had told to: its ranks went with it."""
        with self.changed:
            for rank in self.blocks[number]:
                self.exited(rank, None, int(signal.SIGKILL))
