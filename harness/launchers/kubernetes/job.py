"""A running job whose nodes are pods, each of them the job's own."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from hanglab.harness.kubernetes.connection import KubernetesCluster
from hanglab.harness.kubernetes.errors import KubernetesError
from hanglab.harness.kubernetes.job_pods import record_of
from hanglab.harness.kubernetes.names import CASES
from hanglab.harness.launchers.kubernetes import pods
from hanglab.harness.launchers.kubernetes.errors import PodFailed, launching
from hanglab.harness.launchers.kubernetes.files import EvidenceFiles, place_of, program_of
from hanglab.harness.launchers.kubernetes.links import PodLinks
from hanglab.harness.launchers.nodes.container_environment import container_environment
from hanglab.harness.launchers.nodes.processes import NodePaths
from hanglab.harness.launchers.nodes.remote_job import RemoteJob
from hanglab.harness.launchers.protocol import GRACE_S, JobPlan, LaunchError
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.writer import write

_PATHS = NodePaths(Path(CASES) / "case", Path(CASES) / "log", Path("/tmp/hanglab"))
_COMMAND = ("python", "-m", "hanglab.harness.launchers.kubernetes.node_main")


class KubernetesJob(RemoteJob):
    """Implements :class:`~hanglab.harness.launchers.protocol.RunningJob`."""

    lost_because = "the pod is gone, or the way to it"
    #: Its evidence has to come over the network, too.
    leave_s = 180.0
    links: PodLinks

    def __init__(self, plan: JobPlan, cluster: KubernetesCluster) -> None:
        super().__init__(plan, lambda job: PodLinks(job.take))
        self._cluster = cluster
        self._job = f"hanglab-{secrets.token_hex(4)}"
        self._pods = [f"{self._job}-{number}" for number in range(len(self.blocks))]
        self._made: list[str] = []
        self._evidence = EvidenceFiles(plan)

    # Starting.

    def begin(self) -> None:
        """Returns when all ranks run.  Raises LaunchError; the job then is still to be ended."""
        plan = self.plan
        program = program_of(plan.script)
        folders.make_private(plan.case_dir)
        plan.log_dir.mkdir(parents=True, exist_ok=True)
        with launching():
            for name, block in zip(self._pods, self.blocks, strict=True):
                self._made.append(name)
                limit_s = plan.deadline_s + GRACE_S
                run = str(plan.run_dir)
                pods.create(
                    self._cluster,
                    pods.manifest(name, self._job, len(block), plan.backend, limit_s, run),
                )
            found = pods.await_running(self._cluster, self._job, len(self.blocks), plan.stop)
            for number, name in enumerate(self._pods):
                self.links.start(number, self._cluster, name, _COMMAND)
        self.await_nodes()
        for number in range(len(self.blocks)):
            self.send(number, self._task(number, program))
        self.await_ranks()
        meeting = {
            "MASTER_ADDR": str(found[self._pods[0]].status.pod_ip),
            "MASTER_PORT": str(self.hello[0]["port"]),
        }
        for number in range(len(self.blocks)):
            self.send(number, {"command": "go", "environment": meeting})

    def _task(self, number: int, program: dict[str, str]) -> Message:
        where = {
            "case": str(_PATHS.case),
            "log": str(_PATHS.log),
            "temporary": str(_PATHS.temporary),
            "folder": str(place_of(self.plan.script).parent),
        }
        return {
            **self.task(number, where),
            "script": str(place_of(self.plan.script)),
            "program": program,
            "environment": container_environment(self.plan, number, len(self.blocks), _PATHS),
        }

    def node_failed(self, words: str) -> LaunchError:
        return PodFailed(words)

    # What the recording asks for.

    def names(self) -> dict[int, str]:
        return {n: str(self.hello[n]["name"]) if n in self.hello else p for n, p in self._all()}

    def _all(self) -> list[tuple[int, str]]:
        return list(enumerate(self._pods))

    def keep_facts(self, case: Path) -> None:
        """Writes how pods are, as the cluster tells; at the end what it last told."""
        if self.over:
            return
        with suppress(KubernetesError, OSError):
            found = pods.find(self._cluster, self._job)
            names = self.names()
            for number, pod in self._all():
                if pod in found:
                    host = folders.make_private(folders.host_folder(case, names[number]))
                    write(host, files.POD, record_of(found[pod]))

    # What nodes say.

    def heard(self, number: int, message: Message) -> None:
        if message["event"] != "file":
            super().heard(number, message)
        elif number in self.hello:
            with suppress(OSError, ValueError):  # a full disk: what has come stays
                self._evidence.take(
                    number, self.names()[number], str(message["path"]), str(message["data"])
                )

    def asked_to_end(self) -> None:
        if self.recording is not None:
            self.recording.interrupt()

    # Ending.

    def before_removal(self) -> None:
        """Asks a last time, while there are pods to ask about."""
        if self.recording is not None:
            self.keep_facts(self.plan.case_dir)

    def remove(self) -> None:
        self.links.close()
        failure: LaunchError | None = None
        for name in self._made:
            try:
                with launching():
                    pods.remove(self._cluster, name)
            except LaunchError as error:
                failure = failure or error
        if failure is not None:
            raise failure
