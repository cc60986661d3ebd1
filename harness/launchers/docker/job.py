"""A running job whose nodes are containers."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hanglab.harness.hosts import HostSettings
from hanglab.harness.launchers import owners
from hanglab.harness.launchers.docker.containers import Label, make_containers, write_order
from hanglab.harness.launchers.docker.environment import meeting_point
from hanglab.harness.launchers.docker.errors import explained, lost, not_started
from hanglab.harness.launchers.docker.hosts import ContainerHost, ContainerHosts
from hanglab.harness.launchers.docker.network import bridge_of, make_network, remove_network
from hanglab.harness.launchers.docker.node_facts import KeptFacts, facts_of
from hanglab.harness.launchers.docker.ownership import give, take_back
from hanglab.harness.launchers.docker.reaping import remove_containers
from hanglab.harness.launchers.docker.report_sockets import ReportSockets
from hanglab.harness.launchers.nodes.job import LOOK_S, NodesJob
from hanglab.harness.launchers.protocol import JobPlan, LaunchError
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.harness.launchers.supervision.leftovers import remove_tree
from hanglab.recorder.case.records import Container as Facts

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.models.networks import Network

#: For containers that were started to run their first process, on a busy machine.
_READY_S = 60.0
#: For Docker to notice that a container has ended.
_NOTICE_S = 10.0
#: Characters of a container's own words that belong into an error.
_WORDS = 2000


class ContainerJob(NodesJob):
    """Implements :class:`~hanglab.harness.launchers.protocol.RunningJob`."""

    lost_because = "the container has ended"

    def __init__(
        self,
        client: DockerClient,
        plan: JobPlan,
        label: Label,
        shared: Path,
        settings: Sequence[HostSettings],
        user: tuple[int, int],
    ) -> None:
        super().__init__(plan, [made.ranks for made in settings])
        self._client = client
        self._label = label
        self._shared = shared
        self._settings = settings
        self._user = user
        self._network: Network | None = None
        self._containers: dict[int, Container] = {}
        self._hosts: ContainerHosts | None = None
        #: Process ids of ranks, as this machine counts them.
        self._pids: dict[int, int] = {}
        #: What Docker said at the end.
        self._facts: Mapping[int, Facts] = {}
        self._kept = KeptFacts()
        shared.mkdir(mode=0o700)
        self._links = ReportSockets(shared / "link", user, self.take)

    # Starting.

    def begin(self, image_id: str) -> None:
        """Returns when all ranks run.  Raises LaunchError; the job then is still to be ended."""
        self.plan.case_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.plan.log_dir.mkdir(parents=True, exist_ok=True)
        give(self._user, self._shared, self.plan.case_dir, self.plan.log_dir)
        for number, settings in enumerate(self._settings):
            write_order(self.plan, number, settings, self._shared)
        label = self._label
        labels = {**label.labels, owners.SHARED: str(self._shared)}
        self._network = make_network(self._client, label.prefix, label.job, labels)
        make_containers(
            self._client, self.plan, label, image_id, self._shared, self._settings,
            self._containers,
        )  # fmt: skip
        nodes = {n: self._node(n, made) for n, made in sorted(self._containers.items())}
        self._hosts = ContainerHosts(nodes, self._network, bridge_of(label.job), self.inside)
        self._await_ranks()
        if self.plan.begun is not None:
            self.plan.begun(self._hosts)
        environment = meeting_point({n: node.address for n, node in nodes.items()})
        for number in nodes:
            self.send(number, {"command": "go", "environment": environment})

    def _node(self, number: int, container: Container) -> ContainerHost:
        state = container.attrs["State"]
        networks = container.attrs["NetworkSettings"]["Networks"]
        address = networks[self._label.prefix]["IPAddress"]
        ranks = self._settings[number].ranks
        return ContainerHost(number, container, int(state["Pid"]), str(address), ranks)

    def _await_ranks(self) -> None:
        until = time.monotonic() + _READY_S
        while True:
            with self.changed:
                missing = {self._rank_nodes[r] for r in self._rank_nodes.keys() - self.inside}
                if not missing and not self.gone and not self.failure:
                    return
                if not self.gone and not self.failure:
                    self.changed.wait(LOOK_S)
            if self.failure:
                raise not_started(self.failure)
            for number in sorted(missing | self.gone):
                if number in self.gone or not self._is_running(number):
                    raise not_started(f"Node {number} ended early: {self._words_of(number)}")
            if time.monotonic() > until:
                words = self._words_of(min(missing))
                raise not_started(f"Node {min(missing)} was not ready in {_READY_S:g} s: {words}")

    def _is_running(self, number: int) -> bool:
        with explained(f"Asking for node {number}"):
            self._containers[number].reload()
        return bool(self._containers[number].attrs["State"]["Running"])

    def _words_of(self, number: int) -> str:
        """The end of what a container's first process wrote."""
        with suppress(Exception):  # an error is being told already
            words = self._containers[number].logs(tail=20).decode(errors="replace").strip()
            return str(words[-_WORDS:]) or "it said nothing"
        return "Docker does not hand out what it said"

    def send(self, number: int, message: Message) -> bool:
        return self._links.send(number, message)

    # What the runner sees.

    @property
    def runtime_dir(self) -> Path:
        return self._shared

    @property
    def hosts(self) -> ContainerHosts:
        assert self._hosts is not None
        return self._hosts

    @property
    def pids(self) -> Mapping[int, int]:
        for rank in self.running - self._pids.keys():
            with suppress(ProcessLookupError):
                self._pids[rank] = self.hosts.process_of(rank)
        return self._pids

    # What the recording asks for.

    def is_paused(self, number: int) -> bool:
        with suppress(Exception):  # a daemon that does not answer has paused nothing
            container = self._containers[number]
            container.reload()
            return bool(container.status == "paused")
        return False

    def keep_facts(self, case: Path) -> None:
        facts = self._facts if self.over else self._ask_facts()
        names = self.names()
        self._kept.keep(case, {names[number]: one for number, one in facts.items()})

    def _ask_facts(self) -> dict[int, Facts]:
        found: dict[int, Facts] = {}

        def ask(number: int) -> None:
            with suppress(Exception):  # what Docker does not tell is not in the Case
                found[number] = facts_of(self._containers[number])

        with ThreadPoolExecutor(len(self._containers), "hanglab-docker") as pool:
            list(pool.map(ask, self._containers))
        return found

    def settle(self, number: int) -> None:
        """A node is gone whom nobody had told to: its ranks went with it.

        Raises DaemonLost, and LaunchError where its first process failed.
        """
        container = self._containers[number]
        until = time.monotonic() + _NOTICE_S
        try:
            with explained(f"Asking for node {number}"):
                container.reload()
                while container.attrs["State"]["Running"] and time.monotonic() < until:
                    time.sleep(0.05)
                    container.reload()
        except LaunchError as error:
            raise lost(error) from error
        state = container.attrs["State"]
        with self.changed:
            # The end of a container's first process is SIGKILL for all others.
            for rank in self._settings[number].ranks:
                self.exited(rank, None, int(signal.SIGKILL))
        if state["ExitCode"] not in (128 + signal.SIGKILL, 128 + signal.SIGTERM, 0):
            words = self._words_of(number)
            raise LaunchError(f"Node {number} ended with code {state['ExitCode']}: {words}")

    # Ending.

    def over_ranks(self) -> None:
        if self.plan.over is not None and self._hosts is not None:
            with self.changed:
                self.leaving |= self._hosts.keys()  # a node that ends now is not lost
            self.plan.over(self._hosts)

    def before_removal(self) -> None:
        self._facts = self._ask_facts() if self.recording is not None else {}

    def remove(self) -> None:
        """Whatever fails, the rest is removed; the first failure is raised."""
        self._links.close()
        failures: list[LaunchError] = []
        try:
            remove_containers(self._containers.values())
        except LaunchError as error:
            failures.append(error)
        try:
            if self._network is not None:
                remove_network(self._network)
        except LaunchError as error:
            failures.append(error)
        for settings in self._settings:
            with suppress(OSError):
                settings.closing.close()
        remove_tree(self._shared)
        take_back(self._user, self.plan.case_dir, self.plan.log_dir)
        if failures:
            raise lost(failures[0])
