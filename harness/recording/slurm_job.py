"""Slurm's part in a recorded command that has it start ranks: where they are, and why they ended.

``srun`` has them started by a service of each node, so none of them is below the command.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from hanglab.harness.launchers.protocol import LaunchError
from hanglab.harness.launchers.slurm.commands import (
    ask,
    own_environment,
    step_command,
)
from hanglab.harness.launchers.slurm.queue import record_at_end
from hanglab.harness.launchers.supervision.agent_process import Agent
from hanglab.harness.launchers.supervision.descendants import children_of
from hanglab.recorder.attach.tree import is_python
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.decoders import decoder_of
from hanglab.recorder.case.records import Clock, RankProcess, SchedulerRecord
from hanglab.recorder.case.writer import clock, write
from hanglab.recorder.system import procfs

#: Between two looks for what may have come, and between two questions to the controller.
_LOOK_S = 0.5
_ASK_S = 1.0
#: For Slurm to start a step whose srun is there.
_STEP_S = 20.0
#: For Slurm to note how a job has ended that it ended.
_NOTED_S = 10.0
#: Steps in which no ranks are started by srun.
_OTHER_STEPS = ("batch", "extern", "interactive")


class RecordedSlurmJob:
    """The job of Slurm in which a recorded command's ranks run, once there is one."""

    def __init__(self, case: Path, host: str, command: int) -> None:
        """``host`` is this host's folder in the Case, ``command`` the process id of the command."""
        self._case = case
        self._host = host
        self._command = command
        #: Number in Slurm.
        self.number: str | None = None
        self._given = os.environ.get("SLURM_JOB_ID", "")
        self._known: set[str] = set()
        self._sources: set[object] = set()
        self._found: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._until = 0.0
        self._asking: threading.Thread | None = None
        self._looked = float("-inf")
        #: How often Slurm had begun the job anew when this attempt began.
        self._restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        if self._given:
            # At once: by it the Case is known for the job's own where Slurm begins that anew.
            self._write(
                SchedulerRecord(clock(), "slurm", self._given, "RUNNING", "", self._restarts)
            )

    def look(self) -> list[str]:
        """Other nodes on which steps of it have begun since the last call; to be called often."""
        if time.monotonic() - self._looked >= _LOOK_S:
            self._looked = time.monotonic()
            self._look_for_steps()
        new = []
        with suppress(queue.Empty):
            while True:
                new.append(self._found.get_nowait())
        return new

    def start_agent(
        self, node: str, hang_after_s: float, log: Path, options: Sequence[str]
    ) -> Agent:
        """An agent on a node, as a step of its own.  Raises LaunchError, OSError."""
        assert self.number is not None
        options = ["--several", "--unaided", "--beside", self._host, *options]
        return Agent(
            self._case,
            None,
            world_size=None,
            hang_after_s=hang_after_s,
            log=log,
            options=options,
            starter=step_command(self.number, node, []),
            environment=own_environment(),
        )

    def keep_facts(self, asked_to_end: Clock | None) -> None:
        """Writes what Slurm says of the job; waits for its word where it has ended the job."""
        if self.number is None:
            return
        # Within the job nobody sees its end.
        inside = "SLURMD_NODENAME" in os.environ and self._given == self.number
        record = record_at_end(
            self.number, _NOTED_S if asked_to_end is not None and not inside else 0.0
        )
        if record is not None:
            if inside and record.restarts > self._restarts:
                record.state = "REQUEUED"
            record.asked_to_end = asked_to_end
            self._write(record)

    def _write(self, record: SchedulerRecord) -> None:
        with suppress(OSError):
            write(self._case, files.SCHEDULER, record)

    def end_steps(self) -> None:
        """Ends the steps that ranks are in, whatever those do.  Raises LaunchError."""
        steps = {
            f"{one['SLURM_JOB_ID']}.{one['SLURM_STEP_ID']}"
            for host in self._hosts()
            for one in self._environments(host)
            if one["SLURM_JOB_ID"] == self.number
        }
        if steps:
            ask("scancel", "--signal=KILL", *sorted(steps))

    # Looking.

    def _look_for_steps(self) -> None:
        others = set(self._hosts()) - {self._host}
        sources: set[object] = {*others, *(_sruns(self._command) if self._given else ())}
        if self.number is None and sources - others:
            self.number = self._given
        if self.number is None:
            jobs = (self._first_of(host) for host in others)
            self.number = next((one["SLURM_JOB_ID"] for one in jobs if one), None)
        if self.number is None:
            return
        if sources - self._sources:
            self._sources |= sources
            self._until = time.monotonic() + _STEP_S
        if time.monotonic() < self._until and self._asking is None:
            self._asking = threading.Thread(target=self._ask, name="hanglab-slurm", daemon=True)
            self._asking.start()

    def _ask(self) -> None:
        """Asks which nodes have steps, as long as new ones are likely; a controller may be slow."""
        assert self.number is not None
        try:
            while time.monotonic() < self._until:
                with suppress(LaunchError):
                    for node in _nodes_with_steps(self.number):
                        if node not in self._known and not _is_here(node):
                            self._known.add(node)
                            self._found.put(node)
                time.sleep(_ASK_S)
        finally:
            self._asking = None

    def _hosts(self) -> list[str]:
        with suppress(OSError):
            return os.listdir(self._case / folders.HOSTS)
        return []

    def _environments(self, host: str) -> Iterator[Mapping[str, str]]:
        """Variables of a host's ranks that Slurm has started."""
        ranks = self._case / folders.HOSTS / host / folders.RANKS
        for path in ranks.glob(f"*/{files.PROCESS.name}"):
            with suppress(OSError, msgspec.MsgspecError):
                process = decoder_of(RankProcess).decode(path.read_bytes())
                if {"SLURM_JOB_ID", "SLURM_STEP_ID"} <= process.environment.keys():
                    yield process.environment

    def _first_of(self, host: str) -> Mapping[str, str] | None:
        return next(self._environments(host), None)


def _is_here(node: str) -> bool:
    return os.environ.get("SLURMD_NODENAME") == node or (
        node.partition(".")[0] == socket.gethostname().partition(".")[0]
    )


def _sruns(pid: int) -> list[int]:
    """The command, or those that it has started, as far as they are srun.

    Ranks and other programs of Python have many threads: what is below them is not looked at.
    """
    found, pending = [], [pid]
    while pending:
        one = pending.pop()
        name = os.path.basename((procfs.command_line(one) or [""])[0])
        if name == "srun":
            found.append(one)
        elif one == pid or not is_python(one):
            pending += children_of(one)
    return found


def _nodes_with_steps(job: str) -> set[str]:
    """Names of the nodes on which steps of a job run.  Raises LaunchError."""
    said = ask("squeue", "--steps", "--noheader", "--jobs", job, "--format=%i|%N")
    lists = [
        nodes
        for step, _, nodes in (line.strip().partition("|") for line in said.splitlines())
        if nodes and step.rpartition(".")[2] not in _OTHER_STEPS
    ]
    return set(ask("scontrol", "show", "hostnames", ",".join(lists)).split()) if lists else set()
