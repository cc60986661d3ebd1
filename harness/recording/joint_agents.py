"""The agent beside ``hanglab record`` and those on other nodes of its job, as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hanglab.harness.launchers.nodes.joint_recording import JointRecording
from hanglab.harness.launchers.supervision.agent_process import FINISH_S, Agent, AgentDied
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.recorder.case.records import Clock, Trigger
from hanglab.recorder.case.writer import clock

_PACE_S = 0.01
#: For an agent that never said that it is there.
_UNSEEN_S = 1.0
_OWN = 0
NOT_SHARED = "the node does not see the folder of the Case"


class JointAgents:
    """Several agents with what a recording needs of one :class:`Agent`.

    Implements :class:`~hanglab.harness.launchers.nodes.joint_recording.RecordedNodes`.
    """

    def __init__(
        self,
        own: Agent,
        host: str,
        case: Path,
        hang_after_s: float,
        lost: Callable[[str, str], None],
        keep_facts: Callable[[Clock | None], None],
    ) -> None:
        """``host`` is the own agent's in the Case.

        Called are ``lost`` with a node's name and why it has no agent any more, and
        ``keep_facts`` at the end, with the time at which somebody asked the agents to end.
        """
        self._agents = {_OWN: own}
        self._names = {_OWN: host}
        self._lost = lost
        self._keep_facts = keep_facts
        #: Ranks that run, as each agent counts them.
        self._ranks: dict[int, int] = {}
        self._ready = {_OWN}
        self._gone: set[int] = set()
        self._stuck: set[int] = set()
        self._finished: set[int] = set()
        self._answers: dict[int, bool] = {}
        self._failed = self._ending = self._finishing = False
        self._asked_to_end: Clock | None = None
        self._recording = JointRecording(case, self, None, hang_after_s)
        own.hear = partial(self._hear, _OWN)
        own.order({"command": "several"})

    def add(self, node: str, agent: Agent) -> None:
        """The agent of a node more."""
        number = len(self._agents)
        self._agents[number], self._names[number] = agent, node
        self._recording.add(number)
        agent.hear = partial(self._hear, number)

    @property
    def ranks_elsewhere(self) -> bool:
        """True if ranks run on other nodes, as far as their agents tell."""
        return any(self._ranks.get(number) for number in self._there() if number != _OWN)

    # What the recording's session asks of an agent.

    @property
    def processes(self) -> list[int]:
        return [pid for agent in self._agents.values() for pid in agent.processes]

    @property
    def pids(self) -> dict[int, int]:
        """Ranks' processes, each as its own host counts them."""
        return {rank: pid for agent in self._agents.values() for rank, pid in agent.pids.items()}

    @property
    def captured(self) -> dict[str, Any] | None:
        return self._recording.captured

    @property
    def stuck(self) -> bool:
        living = set(self.living())
        return bool(living) and living <= self._stuck

    def poll(self) -> bool:
        for number in self._there():
            try:
                self._agents[number].poll()
            except AgentDied as error:
                if number not in self._finished:
                    self._lose(number, str(error))
        if not self._there():
            raise AgentDied("The recorder's agents on all nodes have ended.")
        return self._recording.poll()

    def capture(self, kind: str, detail: str) -> None:
        self._recording.capture(kind, detail)

    def wait_captured(self, timeout_s: float) -> bool:
        return self._wait(self.poll, timeout_s)

    def interrupted(self) -> None:
        self._recording.interrupt()
        self._tell({"command": "interrupted"})

    def ending(self) -> None:
        self._ending = True
        self._tell({"command": "ending"})

    def moved_since_capture(self, timeout_s: float) -> bool | None:
        self._answers.clear()
        asked = set(self._there()) & self._ready
        self._tell({"command": "status"})
        self._wait(lambda: self._polled() and asked <= self._answers.keys(), timeout_s)
        return any(self._answers.values()) if self._answers else None

    def wait_ended(self, timeout_s: float) -> bool:
        """Waits until no rank runs on other nodes any more."""
        return self._wait(lambda: self._polled() and not self.ranks_elsewhere, timeout_s)

    def finish(self, *, ended_by_recorder: bool) -> None:
        self._finishing = True
        for number in set(self._there()) - self._ready:
            self._lose(number, "it did not start in time")
        self._tell({"command": "finish", "ended_by_recorder": ended_by_recorder})
        self._wait(lambda: self._polled() and set(self._there()) <= self._finished, FINISH_S)
        for number in set(self._there()) - self._finished:
            self._lose(number, f"it did not finish within {FINISH_S:g} s")
        self._recording.finish(ended_by_recorder=ended_by_recorder)

    def close(self) -> None:
        for number, agent in self._agents.items():
            agent.close(FINISH_S if number in self._ready else _UNSEEN_S)

    # What the joint recording asks of nodes.

    def order(self, number: int, line: Message) -> bool:
        if number in self._gone:
            return False
        self._agents[number].order(line)
        return True

    def living(self) -> Collection[int]:
        return [number for number in self._there() if self._ranks.get(number)]

    def names(self) -> Mapping[int, str]:
        return self._names

    def node_of(self, rank: int) -> int:
        return next((n for n, agent in self._agents.items() if rank in agent.pids), _OWN)

    def is_paused(self, number: int) -> bool:
        return False

    def keep_facts(self, case: Path) -> None:
        """Only at the end: a scheduler that is slow to answer must not hold up a capture."""
        if self._finishing:
            self._keep_facts(self._asked_to_end)

    # Hearing.

    def _hear(self, number: int, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "ready":
            self._ready.add(number)
            self._names[number] = str(event["host"])
        elif kind == "alive":
            self._ranks[number] = int(event["ranks"])
        elif kind == "stuck":
            self._stuck.add(number)
        elif kind == "status":
            self._answers[number] = bool(event["moved"])
        elif kind == "finished":
            self._finished.add(number)
        elif kind == "not_shared":
            self._lose(number, NOT_SHARED)
        elif kind == "asked_to_end" and self._asked_to_end is None and not self._ending:
            self._asked_to_end = clock()
            self._recording.interrupt()
        elif kind == "due" and event["kind"] == "exit" and not self._failed:
            self._failed = True
            for other in set(self._there()) - {number}:
                self.order(other, {"command": "failure", "detail": event["detail"]})
        elif kind == "captured" and self._finishing and self.captured is None:
            self._recording.triggered(msgspec.convert(event["trigger"], Trigger))
        elif kind == "resumed" and self.captured is not None:
            self._failed = False
            self._recording.forget()
        self._recording.take(number, event)

    def _lose(self, number: int, reason: str) -> None:
        if number not in self._gone:
            self._gone.add(number)
            self._recording.lose(number, reason)
            self._lost(self._names[number], reason)

    def _there(self) -> list[int]:
        return [number for number in self._agents if number not in self._gone]

    def _tell(self, line: Message) -> None:
        for number in self._there():
            self.order(number, line)

    def _polled(self) -> bool:
        self.poll()
        return True

    def _wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > until:
                return False
            time.sleep(_PACE_S)
        return True
