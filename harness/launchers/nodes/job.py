"""A running job whose nodes report over channels: what it knows of its ranks, and how it ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from hanglab.harness.launchers.nodes.joint_recording import JointRecording
from hanglab.harness.launchers.protocol import JobPlan, LaunchError, RankExit, RemainsLeft
from hanglab.harness.launchers.supervision.channel import Message

#: Between two looks at nodes that should have said something.
LOOK_S = 0.5
#: For a node to end its ranks.
_END_S = 8.0


class NodesJob:
    """Base of jobs with a :class:`~hanglab.harness.launchers.nodes.processes.NodeProcesses` a node.

    Implements what all share of :class:`~hanglab.harness.launchers.protocol.RunningJob` and of
    :class:`~hanglab.harness.launchers.nodes.joint_recording.RecordedNodes`.
    """

    #: Why a node is gone whose channel has come to its end.
    lost_because = "the node is gone"
    injects = False
    #: Seconds for an agent to finish, and for what its node does after that.
    leave_s = 22.0

    def __init__(self, plan: JobPlan, blocks: Sequence[tuple[int, ...]]) -> None:
        """``blocks`` are the ranks of each node."""
        self.plan = plan
        self.blocks = blocks
        self._rank_nodes = {rank: n for n, block in enumerate(blocks) for rank in block}
        self.recording: JointRecording | None = None
        self.changed = threading.Condition()
        #: Process ids of ranks, as their nodes count them.
        self.inside: dict[int, int] = {}
        self.running = set(self._rank_nodes)
        self._exits: list[RankExit] = []
        self.failure: str | None = None
        #: Nodes whose channel has come to its end, and those of them that did not say so before.
        self.gone: set[int] = set()
        self._lost: set[int] = set()
        self.leaving: set[int] = set()
        self._ended: dict[int, list[int]] = {}
        self._ending = self._over = False

    # What nodes of one kind or another do in their own way.

    def send(self, number: int, message: Message) -> bool:
        """Hands a command to a node; False where it cannot be reached."""
        raise NotImplementedError

    def settle(self, number: int) -> None:
        """A node is gone that nobody had told to; raises LaunchError where that ends the job."""

    def over_ranks(self) -> None:
        """Every rank has ended, and no agent has."""

    def before_removal(self) -> None:
        """All agents have finished, and nothing is removed yet."""

    def remove(self) -> None:
        """Removes what is left of the nodes, as far as that is possible."""

    def heard(self, number: int, message: Message) -> None:
        """A node has said something that not all nodes say; ``changed`` is held."""

    def is_paused(self, number: int) -> bool:
        return False

    def keep_facts(self, case: Path) -> None:
        """Nothing but the nodes themselves knows of them."""

    def names(self) -> Mapping[int, str]:
        return {number: f"node{number}" for number in range(len(self.blocks))}

    # What the runner sees.

    def record(self, hang_after_s: float) -> JointRecording:
        plan = self.plan
        self.recording = JointRecording(plan.case_dir, self, plan.world_size, hang_after_s)
        for number in range(len(self.blocks)):
            self.send(number, {"command": "record", "hang_after_s": hang_after_s})
        return self.recording

    def events(self, timeout: float) -> list[RankExit]:
        with self.changed:
            self.changed.wait_for(lambda: self._exits or self._lost or self.failure, timeout)
            lost, self._lost = self._lost, set()
        for number in lost:
            self.settle(number)
        with self.changed:
            exits, self._exits = self._exits, []
            if not exits and self.failure is not None:
                raise LaunchError(self.failure)
            return exits

    @property
    def over(self) -> bool:
        """True if everything of it has been ended and removed, as far as that was possible."""
        return self._over

    def alive(self) -> bool:
        return bool(self.running) and not self._over

    # What the recording asks for.

    def order(self, number: int, line: Message) -> bool:
        return self.send(number, {"command": "agent", "line": line})

    def living(self) -> Collection[int]:
        return {self._rank_nodes[rank] for rank in self.running}

    def node_of(self, rank: int) -> int:
        return self._rank_nodes[rank]

    # What nodes say, in the thread of their channels.

    def take(self, number: int, message: Message | None) -> None:
        """Takes what a node says; None is the end of its channel."""
        with self.changed:
            self._note(number, message)
            self.changed.notify_all()

    def _note(self, number: int, message: Message | None) -> None:
        recording = self.recording
        if message is None:
            self.gone.add(number)
            if number not in self.leaving:
                self._lost.add(number)
                if recording is not None:
                    recording.lose(number, self.lost_because)
            return
        event = message["event"]
        if event == "started":
            self.inside.update({int(rank): pid for rank, pid in message["pids"].items()})
        elif event == "exit":
            self.exited(message["rank"], message["code"], message["signal"])
        elif event == "agent" and recording is not None:
            recording.take(number, message["line"])
        elif event == "agent_ended" and recording is not None and number not in self.leaving:
            if message["code"] == -signal.SIGKILL:
                recording.lose(number, "the recorder's agent was ended by SIGKILL")
            else:
                recording.take(number, {"event": "died", "code": message["code"]})
        elif event == "ended":
            self._ended[number] = message["left"]
        elif event == "leaving":
            self.leaving.add(number)
        elif event == "failed":
            self.failure = f"Node {number} could not start its ranks: {message['error']}."
        else:
            self.heard(number, message)

    def exited(self, rank: int, code: int | None, number: int | None) -> None:
        """A rank has ended; ``changed`` is held."""
        if rank in self.running:
            self.running.discard(rank)
            stderr = self.plan.log_dir / f"rank{rank}.err"
            ended_here = self._ending and number == signal.SIGKILL
            self._exits.append(RankExit(rank, code, number, stderr, by_launcher=ended_here))

    # Ending.

    def end(self) -> None:
        if self._over:
            return
        self._ending = True
        try:
            self._end_ranks()
            self.over_ranks()
            self._let_agents_finish()
            self.before_removal()
        finally:
            self._over = True
            self.remove()
        left = [pid for pids in self._ended.values() for pid in pids]
        if left:
            raise RemainsLeft(f"Processes of nodes that would not end: {left}.")

    def _end_ranks(self) -> None:
        asked = {n for n in range(len(self.blocks)) if self.send(n, {"command": "end"})}
        self._wait(lambda: asked - self._ended.keys() - self.gone, _END_S)
        with self.changed:
            for rank in sorted(self.running):
                self.exited(rank, None, int(signal.SIGKILL))

    def _let_agents_finish(self) -> None:
        with self.changed:
            told = self._ended.keys() - self.gone
            self.leaving |= told
        asked = {n for n in told if self.send(n, {"command": "leave"})}
        self._wait(lambda: asked - self.gone, self.leave_s)

    def _wait(self, missing: Callable[[], set[int]], seconds: float) -> None:
        """Until no node is missing any more but those that are paused, or the time is over."""
        until = time.monotonic() + seconds
        paused: set[int] = set()
        while missing() - paused and time.monotonic() < until:
            with self.changed:
                changed = not missing() or self.changed.wait(LOOK_S)
            if not changed:
                paused = {number for number in missing() if self.is_paused(number)}
