"""A running job whose nodes are those of an allocation of Slurm."""

from __future__ import annotations

import os
import secrets
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from hanglab.harness.launchers.nodes.remote_job import RemoteJob
from hanglab.harness.launchers.protocol import JobPlan, LaunchError
from hanglab.harness.launchers.slurm import submission
from hanglab.harness.launchers.slurm.environment import meeting_point, node_environment
from hanglab.harness.launchers.slurm.errors import NodeFailed, NotShared
from hanglab.harness.launchers.slurm.links import StepLinks
from hanglab.harness.launchers.slurm.queue import await_start, record_at_end, record_of
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import Clock, SchedulerRecord
from hanglab.recorder.case.writer import clock, write

#: Between two beats of the file that keeps the allocation.
_BEAT_S = 1.0
#: For Slurm to note how a job has ended that it ended.
_NOTED_S = 10.0


class SlurmJob(RemoteJob):
    """Implements :class:`~hanglab.harness.launchers.protocol.RunningJob`."""

    lost_because = "hanglab's step there has ended"
    links: StepLinks

    def __init__(self, plan: JobPlan) -> None:
        super().__init__(plan, lambda job: StepLinks(job.take))
        #: Number in Slurm, once it has one.
        self._number: str | None = None
        self._nodes: list[str] = []
        self._folder = plan.run_dir
        self._word = secrets.token_hex(16)
        self._nonce = plan.run_dir / f"slurm-{secrets.token_hex(4)}"
        self._beat = self._nonce.with_suffix(".alive")
        self._beating = threading.Event()
        #: When Slurm first asked a node's processes to end, by hanglab's clock.
        self._asked_to_end: Clock | None = None
        self._scheduler: SchedulerRecord | None = None

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
            self.links.start(number, self._number, node, command)
        self.await_nodes()
        self._check_folder()
        for number in range(len(self.blocks)):
            self.send(number, self._task(number))
        self.await_ranks()
        machines = {number: str(hello["machine"]) for number, hello in self.hello.items()}
        environment = meeting_point(self._nodes, machines, int(self.hello[0]["port"]))
        for number in range(len(self.blocks)):
            self.send(number, {"command": "go", "environment": environment})

    def _keep(self) -> None:
        beats = 0
        while not self._beating.wait(_BEAT_S):
            beats += 1
            with suppress(OSError), self._beat.open("r+") as file:  # gone, it stays so
                file.write(str(beats))

    def _task(self, number: int) -> Message:
        plan = self.plan
        temporary = Path(f"/tmp/hanglab-{self._nonce.name[-8:]}-{number}")
        folders = {
            "case": os.path.abspath(plan.case_dir),
            "log": os.path.abspath(plan.log_dir),
            "temporary": str(temporary),
            "folder": os.getcwd(),
        }
        return {
            **self.task(number, folders),
            "beat": os.path.abspath(self._beat),
            "environment": node_environment(plan, number, len(self.blocks), temporary),
        }

    def _check_folder(self) -> None:
        for number, hello in sorted(self.hello.items()):
            if hello["seen"] != self._word:
                raise NotShared(
                    f"Node {self._nodes[number]} does not see {os.path.abspath(self._folder)} of "
                    "this host, where the job's Case is to be written."
                )

    # What the recording asks for.

    def names(self) -> dict[int, str]:
        return dict(enumerate(self._nodes))

    def node_failed(self, words: str) -> NodeFailed:
        return NodeFailed(words)

    def keep_facts(self, case: Path) -> None:
        record = self._scheduler
        if record is None and self._number is not None:
            record = record_of(self._number)
        if record is not None:
            record = msgspec.structs.replace(record, asked_to_end=self._asked_to_end)
            with suppress(OSError):
                write(case, files.SCHEDULER, record)

    def asked_to_end(self) -> None:
        if self._asked_to_end is None:
            self._asked_to_end = clock()
            if self.recording is not None:
                self.recording.interrupt()

    # Ending.

    def before_removal(self) -> None:
        """Waits for Slurm's word, where Slurm has ended the job."""
        if self._number is None or self.recording is None:
            return
        ended = bool(self._asked_to_end or self._lost)
        if ended:
            self._let_keeper_go()
        self._scheduler = record_at_end(self._number, _NOTED_S if ended else 0.0)

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
        self.links.close()
        for path in (self._nonce, self._folder / submission.KEEPER):
            path.unlink(missing_ok=True)
        if failure is not None:
            raise failure
