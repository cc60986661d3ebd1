"""A running job whose nodes are those of an allocation of Slurm."""

from __future__ import annotations

import base64
import os
import pickle
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from hanglab.harness.faults.host_fault import strikes_in
from hanglab.harness.hosts import ThisMachine
from hanglab.harness.launchers import protocol
from hanglab.harness.launchers.nodes.job import LOOK_S, NodesJob
from hanglab.harness.launchers.nodes.placement import placed
from hanglab.harness.launchers.protocol import JobPlan, LaunchError
from hanglab.harness.launchers.slurm import submission
from hanglab.harness.launchers.slurm.environment import meeting_point, node_environment
from hanglab.harness.launchers.slurm.errors import NodeFailed, NotShared
from hanglab.harness.launchers.slurm.links import NodeLinks
from hanglab.harness.launchers.slurm.queue import await_start, record_of
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import Clock, SchedulerRecord
from hanglab.recorder.case.writer import clock, write

#: For nodes to start hanglab, and that its ranks, on a slow disk and a busy machine.
_READY_S = 180.0
#: Between two beats of the file that keeps the allocation.
_BEAT_S = 1.0
#: For Slurm to note how a job has ended that it ended.
_NOTED_S = 10.0
_RUNNING = ("RUNNING", "COMPLETING")


class SlurmJob(NodesJob):
    """Implements :class:`~hanglab.harness.launchers.protocol.RunningJob`."""

    lost_because = "hanglab's step there has ended"
    #: Faults strike on the nodes: the ranks' processes are theirs.
    injects = True

    def __init__(self, plan: JobPlan) -> None:
        super().__init__(plan, placed(plan.world_size, plan.nodes or 1))
        #: Number in Slurm, once it has one.
        self._number: str | None = None
        self._nodes: list[str] = []
        self._folder = plan.run_dir
        self._word = secrets.token_hex(16)
        self._nonce = plan.run_dir / f"slurm-{secrets.token_hex(4)}"
        self._beat = self._nonce.with_suffix(".alive")
        self._beating = threading.Event()
        self._hello: dict[int, Message] = {}
        #: When Slurm first asked a node's processes to end, by hanglab's clock.
        self._asked_to_end: Clock | None = None
        self._scheduler: SchedulerRecord | None = None
        self._links = NodeLinks(self.take)

    # Starting.

    def begin(self) -> None:
        """Returns when all ranks run.  Raises LaunchError; the job then is still to be ended."""
        plan = self.plan
        plan.case_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        plan.log_dir.mkdir(parents=True, exist_ok=True)
        self._nonce.write_text(self._word)
        self._beat.write_text("0")
        threading.Thread(target=self._keep, name="hanglab-slurm-beat", daemon=True).start()
        tasks = max(map(len, self.blocks))
        self._number = submission.submit(plan, len(self.blocks), tasks, self._beat)
        self._nodes = await_start(self._number, plan.stop)
        for number, node in enumerate(self._nodes):
            command = [sys.executable, "-m", "hanglab.harness.launchers.slurm.node_main"]
            command += [str(number), os.path.abspath(self._nonce)]
            self._links.start(number, self._number, node, command)
        self._await(lambda: set(range(len(self.blocks))) - self._hello.keys())
        self._check_folder()
        for number in range(len(self.blocks)):
            self.send(number, self._order(number))
        self._await(lambda: {self.node_of(rank) for rank in set(self._ranks) - self.inside.keys()})
        machines = {number: str(hello["machine"]) for number, hello in self._hello.items()}
        environment = meeting_point(self._nodes, machines, int(self._hello[0]["port"]))
        for number in range(len(self.blocks)):
            self.send(number, {"command": "go", "environment": environment})

    def _keep(self) -> None:
        beats = 0
        while not self._beating.wait(_BEAT_S):
            beats += 1
            with suppress(OSError), self._beat.open("r+") as file:  # gone, it stays so
                file.write(str(beats))

    def _order(self, number: int) -> Message:
        plan = self.plan
        own = [fault for fault in plan.faults if strikes_in(fault, plan.faulty)]
        faults = [(n, one) for n, one in enumerate(own) if one.rank in self.blocks[number]]
        temporary = Path(f"/tmp/hanglab-{self._nonce.name[-8:]}-{number}")
        return {
            "number": number,
            "ranks": list(self.blocks[number]),
            "world_size": plan.world_size,
            "script": os.path.abspath(plan.script),
            "function": plan.function,
            "arguments": list(plan.arguments),
            "wrap": [],
            "limit_s": plan.deadline_s + protocol.GRACE_S,
            "case": os.path.abspath(plan.case_dir),
            "log": os.path.abspath(plan.log_dir),
            "beat": os.path.abspath(self._beat),
            "temporary": str(temporary),
            "folder": os.getcwd(),
            "environment": node_environment(plan, number, len(self.blocks), temporary),
            "faults": base64.b64encode(pickle.dumps(faults)).decode(),
        }

    def _await(self, missing: Callable[[], set[int]]) -> None:
        """Until no node is missing any more.  Raises LaunchError."""
        until = time.monotonic() + _READY_S
        while True:
            with self.changed:
                left = missing()
                if not left and not self.gone and not self.failure:
                    return
                if not self.gone and not self.failure:
                    self.changed.wait(LOOK_S)
            if self.failure:
                raise NodeFailed(self.failure)
            if self.gone:
                raise NodeFailed(self._ended_early(min(self.gone)))
            if self.plan.stop is not None and self.plan.stop.is_set():
                raise NodeFailed("hanglab was interrupted while nodes started.")
            if time.monotonic() > until:
                number = min(left)
                raise NodeFailed(
                    f"Node {self._nodes[number]} was not ready in {_READY_S:g} s: "
                    f"{self._links.words_of(number) or 'it said nothing'}."
                )

    def _ended_early(self, number: int) -> str:
        words = self._links.words_of(number)
        return f"Node {self._nodes[number]} ended early: {words or 'it said nothing'}."

    def _check_folder(self) -> None:
        for number, hello in sorted(self._hello.items()):
            if hello["seen"] != self._word:
                raise NotShared(
                    f"Node {self._nodes[number]} does not see {os.path.abspath(self._folder)} of "
                    "this host, where the job's Case is to be written."
                )

    def send(self, number: int, message: Message) -> bool:
        return self._links.send(number, message)

    # What the runner sees.

    @property
    def _ranks(self) -> list[int]:
        return [rank for block in self.blocks for rank in block]

    @property
    def runtime_dir(self) -> Path:
        return self._folder

    @property
    def hosts(self) -> ThisMachine:
        return ThisMachine({})

    @property
    def pids(self) -> dict[int, int]:
        """None: processes of nodes have no number on this host."""
        return {}

    # What the recording asks for.

    def names(self) -> dict[int, str]:
        return dict(enumerate(self._nodes))

    def keep_facts(self, case: Path) -> None:
        record = self._scheduler
        if record is None and self._number is not None:
            record = record_of(self._number)
        if record is not None:
            record = msgspec.structs.replace(record, asked_to_end=self._asked_to_end)
            with suppress(OSError):
                write(case, files.SCHEDULER, record)

    def heard(self, number: int, message: Message) -> None:
        event = message["event"]
        if event == "hello":
            self._hello[number] = message
        elif event == "asked_to_end" and self._asked_to_end is None:
            self._asked_to_end = clock()
            if self.recording is not None:
                self.recording.interrupt()
        elif event == "strikes" and self.plan.struck is not None:
            for index, found in message["strikes"].items():
                self.plan.struck(int(index), found)

    def settle(self, number: int) -> None:
        """A node is gone whom nobody had told to: its ranks went with it."""
        with self.changed:
            for rank in self.blocks[number]:
                self.exited(rank, None, int(signal.SIGKILL))

    # Ending.

    def before_removal(self) -> None:
        """Waits for Slurm's word, where Slurm has ended the job."""
        if self._number is None or self.recording is None:
            return
        ended = bool(self._asked_to_end or self._lost)
        until = time.monotonic() + (_NOTED_S if ended else 0)
        if ended:
            self._let_keeper_go()
        self._scheduler = record_of(self._number)
        while (
            self._scheduler is not None
            and self._scheduler.state in _RUNNING
            and time.monotonic() < until
        ):
            time.sleep(LOOK_S)
            self._scheduler = record_of(self._number)

    def _let_keeper_go(self) -> None:
        self._beating.set()
        with suppress(OSError):
            self._beat.unlink()

    def remove(self) -> None:
        failure: LaunchError | None = None
        self._let_keeper_go()
        if self._number is not None:
            try:
                submission.cancel(self._number)
            except LaunchError as error:
                failure = error
        self._links.close()
        for path in (self._nonce, self._folder / submission.KEEPER):
            path.unlink(missing_ok=True)
        if failure is not None:
            raise failure
