"""A running job whose nodes are containers."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hanglab.harness.hosts import HostSettings
from hanglab.harness.launchers.docker import owners
from hanglab.harness.launchers.docker.containers import Label, make_containers, write_order
from hanglab.harness.launchers.docker.environment import meeting_point
from hanglab.harness.launchers.docker.errors import explained, lost, not_started
from hanglab.harness.launchers.docker.hosts import ContainerHost, ContainerHosts
from hanglab.harness.launchers.docker.network import bridge_of, make_network, remove_network
from hanglab.harness.launchers.docker.node_facts import facts_of
from hanglab.harness.launchers.docker.ownership import give, take_back
from hanglab.harness.launchers.docker.reaping import remove_containers
from hanglab.harness.launchers.docker.recording import JointRecording
from hanglab.harness.launchers.docker.report_sockets import ReportSockets
from hanglab.harness.launchers.protocol import JobPlan, LaunchError, RankExit, RemainsLeft
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.harness.launchers.supervision.leftovers import remove_tree
from hanglab.recorder.case.records import Container as Facts

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.models.networks import Network

#: For containers that were started to run their first process, on a busy machine.
_READY_S = 60.0
#: Between two looks at containers that should have said something.
_LOOK_S = 0.5
#: For a node to end its ranks, and then for its agent to finish.
_END_S = 8.0
_LEAVE_S = 22.0
#: For Docker to notice that a container has ended.
_NOTICE_S = 10.0
#: Characters of a container's own words that belong into an error.
_WORDS = 2000


class ContainerJob:
    """Implements :class:`~hanglab.harness.launchers.protocol.RunningJob`."""

    def __init__(
        self,
        client: DockerClient,
        plan: JobPlan,
        label: Label,
        shared: Path,
        settings: Sequence[HostSettings],
        user: tuple[int, int],
    ) -> None:
        self._client = client
        self._plan = plan
        self._label = label
        self._shared = shared
        self._settings = settings
        self._rank_nodes = {
            rank: number for number, made in enumerate(settings) for rank in made.ranks
        }
        self._user = user
        self._network: Network | None = None
        self._containers: dict[int, Container] = {}
        self._hosts: ContainerHosts | None = None
        self._recording: JointRecording | None = None
        self._changed = threading.Condition()
        #: Process ids of ranks, as their containers count them, and as the host does.
        self._inside: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._running = set(self._rank_nodes)
        self._exits: list[RankExit] = []
        self._failure: str | None = None
        #: Nodes whose link has come to its end, and those of them that did not say so before.
        self._gone: set[int] = set()
        self._lost: set[int] = set()
        self._leaving: set[int] = set()
        self._ended: dict[int, list[int]] = {}
        #: What Docker said at the end.
        self._facts: Mapping[int, Facts] = {}
        self._ending = self._over = False
        shared.mkdir(mode=0o700)
        self._links = ReportSockets(shared / "link", user, self._take)

    # Starting.

    def begin(self, image_id: str) -> None:
        """Returns when all ranks run.  Raises LaunchError; the job then is still to be ended."""
        self._plan.case_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._plan.log_dir.mkdir(parents=True, exist_ok=True)
        give(self._user, self._shared, self._plan.case_dir, self._plan.log_dir)
        for number, settings in enumerate(self._settings):
            write_order(self._plan, number, settings, self._shared)
        label = self._label
        labels = {**label.labels, owners.SHARED: str(self._shared)}
        self._network = make_network(self._client, label.prefix, label.job, labels)
        make_containers(
            self._client, self._plan, label, image_id, self._shared, self._settings,
            self._containers,
        )  # fmt: skip
        nodes = {n: self._node(n, made) for n, made in sorted(self._containers.items())}
        self._hosts = ContainerHosts(nodes, self._network, bridge_of(label.job), self._inside)
        self._await_ranks()
        if self._plan.begun is not None:
            self._plan.begun(self._hosts)
        environment = meeting_point({n: node.address for n, node in nodes.items()})
        for number in nodes:
            self._links.send(number, {"command": "go", "environment": environment})

    def _node(self, number: int, container: Container) -> ContainerHost:
        state = container.attrs["State"]
        networks = container.attrs["NetworkSettings"]["Networks"]
        address = networks[self._label.prefix]["IPAddress"]
        ranks = self._settings[number].ranks
        return ContainerHost(number, container, int(state["Pid"]), str(address), ranks)

    def _await_ranks(self) -> None:
        until = time.monotonic() + _READY_S
        while True:
            with self._changed:
                missing = {self._rank_nodes[r] for r in self._rank_nodes.keys() - self._inside}
                if not missing and not self._gone and not self._failure:
                    return
                if not self._gone and not self._failure:
                    self._changed.wait(_LOOK_S)
            if self._failure:
                raise not_started(self._failure)
            for number in sorted(missing | self._gone):
                if number in self._gone or not self._is_running(number):
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
        for rank in self._running - self._pids.keys():
            with suppress(ProcessLookupError):
                self._pids[rank] = self.hosts.process_of(rank)
        return self._pids

    def record(self, hang_after_s: float) -> JointRecording:
        plan = self._plan
        self._recording = JointRecording(plan.case_dir, self, plan.world_size, hang_after_s)
        for number in self.hosts:
            self._links.send(number, {"command": "record", "hang_after_s": hang_after_s})
        return self._recording

    def events(self, timeout: float) -> list[RankExit]:
        with self._changed:
            self._changed.wait_for(lambda: self._exits or self._lost or self._failure, timeout)
            lost, self._lost = self._lost, set()
        for number in lost:
            self._settle(number)
        with self._changed:
            exits, self._exits = self._exits, []
            if not exits and self._failure is not None:
                raise LaunchError(self._failure)
            return exits

    @property
    def over(self) -> bool:
        """True if everything of it has been ended and removed, as far as that was possible."""
        return self._over

    def alive(self) -> bool:
        return bool(self._running) and not self._over

    # What the recording asks for.

    def order(self, number: int, line: Message) -> bool:
        return self._links.send(number, {"command": "agent", "line": line})

    def living(self) -> Collection[int]:
        return {self._rank_nodes[rank] for rank in self._running}

    def names(self) -> Mapping[int, str]:
        return {number: f"node{number}" for number in range(len(self._settings))}

    def node_of(self, rank: int) -> int:
        return self._rank_nodes[rank]

    def is_paused(self, number: int) -> bool:
        with suppress(Exception):  # a daemon that does not answer has paused nothing
            container = self._containers[number]
            container.reload()
            return bool(container.status == "paused")
        return False

    def facts(self) -> Mapping[int, Facts]:
        found: dict[int, Facts] = {}

        def ask(number: int) -> None:
            with suppress(Exception):  # what Docker does not tell is not in the Case
                found[number] = facts_of(self._containers[number])

        if self._over:
            return self._facts
        with ThreadPoolExecutor(len(self._containers), "hanglab-docker") as pool:
            list(pool.map(ask, self._containers))
        return found

    # What nodes say, in the thread of the links.

    def _take(self, number: int, message: Message | None) -> None:
        with self._changed:
            self._note(number, message)
            self._changed.notify_all()

    def _note(self, number: int, message: Message | None) -> None:
        recording = self._recording
        if message is None:
            self._gone.add(number)
            if number not in self._leaving:
                self._lost.add(number)
                if recording is not None:
                    recording.lose(number, "the container has ended")
            return
        event = message["event"]
        if event == "started":
            self._inside.update({int(rank): pid for rank, pid in message["pids"].items()})
        elif event == "exit":
            self._exited(message["rank"], message["code"], message["signal"])
        elif event == "agent" and recording is not None:
            recording.take(number, message["line"])
        elif event == "agent_ended" and recording is not None and number not in self._leaving:
            if message["code"] == -signal.SIGKILL:
                recording.lose(number, "the recorder's agent was ended by SIGKILL")
            else:
                recording.take(number, {"event": "died", "code": message["code"]})
        elif event == "ended":
            self._ended[number] = message["left"]
        elif event == "leaving":
            self._leaving.add(number)
        elif event == "failed":
            self._failure = f"Node {number} could not start its ranks: {message['error']}."

    def _exited(self, rank: int, code: int | None, number: int | None) -> None:
        if rank in self._running:
            self._running.discard(rank)
            stderr = self._plan.log_dir / f"rank{rank}.err"
            ended_here = self._ending and number == signal.SIGKILL
            self._exits.append(RankExit(rank, code, number, stderr, by_launcher=ended_here))

    def _settle(self, number: int) -> None:
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
        with self._changed:
            # The end of a container's first process is SIGKILL for all others.
            for rank in self._settings[number].ranks:
                self._exited(rank, None, int(signal.SIGKILL))
        if state["ExitCode"] not in (128 + signal.SIGKILL, 128 + signal.SIGTERM, 0):
            words = self._words_of(number)
            raise LaunchError(f"Node {number} ended with code {state['ExitCode']}: {words}")

    # Ending.

    def end(self) -> None:
        if self._over:
            return
        self._ending = True
        try:
            self._end_ranks()
            if self._plan.over is not None and self._hosts is not None:
                with self._changed:
                    self._leaving |= self._hosts.keys()  # a node that ends now is not lost
                self._plan.over(self._hosts)
            self._let_agents_finish()
            self._facts = self.facts() if self._recording is not None else {}
        finally:
            self._over = True
            self._remove()
        left = [pid for pids in self._ended.values() for pid in pids]
        if left:
            raise RemainsLeft(f"Processes of containers that would not end: {left}.")

    def _end_ranks(self) -> None:
        asked = {n for n in self._containers if self._links.send(n, {"command": "end"})}
        self._wait(lambda: asked - self._ended.keys() - self._gone, _END_S)
        with self._changed:
            for rank in sorted(self._running):
                self._exited(rank, None, int(signal.SIGKILL))

    def _let_agents_finish(self) -> None:
        with self._changed:
            told = self._ended.keys() - self._gone
            self._leaving |= told
        asked = {n for n in told if self._links.send(n, {"command": "leave"})}
        self._wait(lambda: asked - self._gone, _LEAVE_S)

    def _wait(self, missing: Callable[[], set[int]], seconds: float) -> None:
        """Until no node is missing any more but those that are paused, or the time is over."""
        until = time.monotonic() + seconds
        paused: set[int] = set()
        while missing() - paused and time.monotonic() < until:
            with self._changed:
                changed = not missing() or self._changed.wait(_LOOK_S)
            if not changed:
                paused = {number for number in missing() if self.is_paused(number)}

    def _remove(self) -> None:
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
        take_back(self._user, self._plan.case_dir, self._plan.log_dir)
        if failures:
            raise lost(failures[0])
