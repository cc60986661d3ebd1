"""One recording out of the agents of all nodes: it decides when they capture."""

from __future__ import annotations

import queue
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hanglab.harness.launchers.supervision.agent_process import AgentDied
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.decoders import decoder_of
from hanglab.recorder.case.records import (
    Absence,
    Clock,
    Exit,
    JobRecord,
    Trigger,
    TriggerKind,
)
from hanglab.recorder.case.writer import clock, write, write_manifest, write_tail

#: An agent that has said nothing for so many seconds after it was asked is not waited for.
_SILENT_S = 6.0
#: How long its answer counts.
_FRESH_S = 1.0
#: Seconds within which all agents must have captured.
_CAPTURE_S = 13.0
_PACE_S = 0.01
#: The weightier reason for a capture is the one that is told.
_WEIGHT: dict[TriggerKind, int] = {"no_progress": 0, "timeout_dump": 1, "exit": 2}


class RecordedNodes(Protocol):
    """The nodes of a job, as a recording needs them."""

    def order(self, number: int, line: Message) -> bool:
        """Hands a command to the agent of a node; False where it cannot be reached."""

    def living(self) -> Collection[int]:
        """Nodes whose ranks have not all ended."""

    def names(self) -> Mapping[int, str]:
        """Every node's name in the Case."""

    def node_of(self, rank: int) -> int: ...

    def is_paused(self, number: int) -> bool: ...

    def keep_facts(self, case: Path) -> None:
        """Writes into the Case what only the launcher knows; at the capture, and at the end."""


@dataclass
class _NodeAgent:
    """State of one node's agent."""

    #: When it last said something, and when it was last asked to (monotonic).
    heard: float = 0.0
    asked: float = 0.0
    due: tuple[TriggerKind, str, float] | None = None
    #: Why it takes part no more; "" while it does.
    lost: str = ""
    captured: bool = False
    absent: list[Absence] = field(default_factory=list)


class JointRecording:
    """Implements :class:`~hanglab.harness.launchers.protocol.Recording`."""

    def __init__(
        self, case: Path, nodes: RecordedNodes, world_size: int | None, hang_after_s: float
    ) -> None:
        self.pids: dict[int, int] = {}
        self.captured: dict[str, Any] | None = None
        self._case = case
        self._nodes = nodes
        self._job = JobRecord(world_size, clock(), hang_after_s)
        self._said: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        #: By how much the clock of each node is ahead of this one's, in nanoseconds.
        self._ahead: dict[int, int] = {}
        self._agents = {number: _NodeAgent() for number in nodes.names()}
        self._failed = False
        #: The capture that is to be made, and since when (monotonic).
        self._wanted: tuple[Trigger, float] | None = None
        self._capturing: float | None = None
        self._died: str | None = None

    def take(self, number: int, line: Message) -> None:
        """Take a message of a node's agent; from any thread."""
        told = line.get("wall_ns")
        if isinstance(told, int):
            # The message that took least time tells most.
            ahead = told - time.time_ns()
            self._ahead[number] = max(ahead, self._ahead.get(number, ahead))
        self._said.put((number, line))

    def add(self, number: int) -> None:
        """The job has come to another node, with an agent of its own."""
        self._agents[number] = _NodeAgent()

    def lose(self, number: int, reason: str) -> None:
        """A node's agent is gone; from any thread."""
        self._said.put((number, {"event": "lost", "reason": reason}))

    # What the runner asks for.

    def poll(self) -> bool:
        self._catch_up()
        if self._died is not None:
            raise AgentDied(self._died)
        if self.captured is None:
            if self._wanted is None:
                self._decide()
            if self._wanted is not None:
                self._carry_out(*self._wanted)
        return self.captured is not None

    def capture(self, kind: str, detail: str) -> None:
        if self._wanted is None and self.captured is None:
            known = msgspec.convert(kind, TriggerKind)
            self._wanted = Trigger(known, clock(), 0.0, detail), time.monotonic()

    def wait_captured(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while not self.poll():
            if time.monotonic() > until:
                return False
            time.sleep(_PACE_S)
        return True

    def forget(self) -> None:
        """Have all agents drop what was captured: it was no hang, and the watch begins anew."""
        self.captured = self._wanted = self._capturing = self._job.trigger = None
        self._write_job()
        for number, agent in self._agents.items():
            agent.captured, agent.due = False, None
            self._nodes.order(number, {"command": "forget"})

    def triggered(self, trigger: Trigger) -> None:
        """An agent has captured by itself, at its end; the first such capture counts."""
        self._job.trigger = self._job.trigger or trigger

    def interrupt(self) -> None:
        """Somebody asks the job to end, from outside; from any thread."""
        self._job.interrupted = self._job.interrupted or clock()

    def exited(
        self,
        rank: int,
        code: int | None,
        signal: int | None,
        stderr: Path,
        *,
        by_recorder: bool,
    ) -> None:
        """The node's own agent has been told already, if it could be."""
        number = self._nodes.node_of(rank)
        self._catch_up()
        if self._agents[number].lost:
            self._write_exit(number, rank, Exit(clock(), code, signal, by_recorder), stderr)
        if not by_recorder and (code or signal is not None) and not self._failed:
            self._failed = True
            how = f"was ended by signal {signal}" if signal else f"ended with code {code}"
            for other in self._agents:
                if other != number:
                    line = {"command": "failure", "detail": f"rank {rank} {how}"}
                    self._nodes.order(other, line)

    def finish(self, *, ended_by_recorder: bool) -> None:
        self._catch_up()
        self._nodes.keep_facts(self._case)
        self._job.ended = clock()
        self._job.clocks_ahead_ns = {self._name(n): ahead for n, ahead in self._ahead.items()}
        self._job.ended_by_recorder = ended_by_recorder
        absent = [absence for agent in self._agents.values() for absence in agent.absent]
        names = self._nodes.names()
        absent += [
            Absence("agent", agent.lost, names[number])
            for number, agent in self._agents.items()
            if agent.lost
        ]
        self._write_job()
        with suppress(OSError):
            write_manifest(self._case, "hanglab", absent)

    def close(self) -> None:
        """Agents end with their nodes."""

    # Deciding.

    def _decide(self) -> None:
        """Wants a capture once every node says so whose ranks live, and that answers."""
        living = [number for number in self._nodes.living() if not self._agents[number].lost]
        due = [due for number in living if (due := self._agents[number].due) is not None]
        if not due:
            return
        for number in living:
            if self._agents[number].due is None and not self._is_silent(number):
                return
        kind, detail, _ = max(due, key=lambda one: _WEIGHT.get(one[0], 0))
        quiet_s = min(quiet_s for _, _, quiet_s in due)
        self._wanted = Trigger(kind, clock(), quiet_s, detail), time.monotonic()

    def _is_silent(self, number: int) -> bool:
        """Asks an agent whether it is there; True once it is clear that it does not answer."""
        agent = self._agents[number]
        now = time.monotonic()
        if agent.asked <= agent.heard:
            if now - agent.heard > _FRESH_S or not agent.asked:
                agent.asked = now
                self._nodes.order(number, {"command": "status"})
            return False
        return now - agent.asked > _SILENT_S or self._nodes.is_paused(number)

    def _carry_out(self, trigger: Trigger, since: float) -> None:
        """First asks who is there, then has those capture, and waits for them."""
        there = [n for n, agent in self._agents.items() if not agent.lost]
        if self._capturing is None:
            unheard = [number for number in there if self._agents[number].heard < since]
            for number in unheard:
                if self._agents[number].asked < since:
                    self._agents[number].asked = time.monotonic()
                    self._nodes.order(number, {"command": "status"})
            for number in unheard:
                agent = self._agents[number]
                if not self._is_silent(number):
                    return
                why = "paused" if self._nodes.is_paused(number) else "there, and does not answer"
                agent.lost = f"the node is {why}"
            self._nodes.keep_facts(self._case)
            self._capturing = time.monotonic()
            line = {"command": "capture", "kind": trigger.kind, "detail": trigger.detail}
            for number, agent in self._agents.items():
                if not agent.lost:
                    self._nodes.order(number, line)
            return
        late = time.monotonic() - self._capturing > _CAPTURE_S
        for number in there:
            if not self._agents[number].captured:
                if not late:
                    return
                self._agents[number].absent.append(
                    Absence("capture", f"not done within {_CAPTURE_S:g} s", self._name(number))
                )
        self._job.trigger = trigger
        self._write_job()
        self.captured = msgspec.to_builtins(trigger)

    # Hearing.

    def _catch_up(self) -> None:
        while True:
            try:
                number, line = self._said.get_nowait()
            except queue.Empty:
                return
            self._hear(number, line)

    def _hear(self, number: int, line: Message) -> None:
        agent = self._agents[number]
        event = line.get("event")
        if event == "lost":
            agent.lost = agent.lost or str(line["reason"])
            return
        agent.heard = time.monotonic()
        if event == "due":
            kind = msgspec.convert(line["kind"], TriggerKind)
            agent.due = kind, str(line["detail"]), float(line["quiet_s"])
        elif event == "undue":
            agent.due = None
        elif event == "captured":
            agent.captured = True
        elif event == "finished":
            decoder_of(list[Absence])  # before two jobs ask for it at the same time
            agent.absent += msgspec.convert(line.get("absent") or [], list[Absence])
        elif event == "died":
            self._died = f"The recorder's agent on node {number} ended with {line['code']}."

    # Writing.

    def _name(self, number: int) -> str:
        return self._nodes.names()[number]

    def _write_job(self) -> None:
        with suppress(OSError):
            write(self._case, files.JOB, self._job)

    def _write_exit(self, number: int, rank: int, end: Exit, stderr: Path) -> None:
        folder = folders.rank_folder(self._case, self._name(number), rank)
        # What lies in a host's folder is in its own time.
        wall_ns = end.at.wall_ns + self._ahead.get(number, 0)
        end = msgspec.structs.replace(end, at=Clock(wall_ns, end.at.mono_ns))
        with suppress(OSError):
            if not _is_told(folder / files.EXIT.name):
                write(folder, files.EXIT, end)
            write_tail(folder / files.STDERR.name, stderr)


def _is_told(path: Path) -> bool:
    """True where an end stands there, and how the rank ended."""
    with suppress(OSError, msgspec.MsgspecError):
        return not decoder_of(Exit).decode(path.read_bytes()).vanished
    return False
