"""Containers as namespaces make them, with processes in them that say they are ranks.

A rank does as it is told: it serves, calls and accepts, as jobs do when they meet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from conditions import PATIENCE_S, wait_for

from hanglab.recorder.attach.tree import FoundRank, by_environment
from hanglab.recorder.system import procfs

_UNSHARE = ("unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child")
_OBEYS = """
import socket, sys
held, servers = [], []
print("up", flush=True)
for line in sys.stdin:
    word, *end = line.split()
    if word == "serve":
        family = socket.AF_INET6 if ":" in end[0] else socket.AF_INET
        servers.append(socket.create_server((end[0], int(end[1])), family=family))
    elif word == "accept":
        held.append(servers[-1].accept())
    elif word == "call":
        held.append(socket.create_connection((end[0], int(end[1])), 60))
    elif word == "drop":
        held.clear()
    elif word == "import":
        __import__(end[0])
    elif word == "end":
        sys.exit(int(end[0]))
    print("done", flush=True)
"""


def _may() -> bool:
    with contextlib.suppress(OSError):
        done = subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False)
        return done.returncode == 0 and shutil.which("ip") is not None
    return False


needs_namespaces = pytest.mark.skipif(
    not _may(), reason="namespaces need root (--cap-add SYS_ADMIN) and iproute2"
)


class Rank:
    """A process in a rank's environment."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._answers("up")
        self.pid = [process.pid, *procfs.descendants([process.pid])[process.pid]][-1]

    def do(self, *words: object) -> None:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)
        self._answers("done")

    def _answers(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def end(self, code: int) -> None:
        assert self.process.stdin is not None
        print("end", code, file=self.process.stdin, flush=True)
        assert self.process.wait(PATIENCE_S) == code

    @property
    def found(self) -> FoundRank:
        rank = by_environment(self.pid)
        return rank if rank is not None else FoundRank(self.pid, 0, None, 0, 0, "", "")

    def meet(self, other: Rank, address: str, port: int) -> None:
        """The other one serves there already."""
        self.do("call", address, port)
        other.do("accept")


class Machine:
    """The host, whose containers and ranks end with the test."""

    #: Words before a command that is to run here.
    inside: tuple[str, ...] = ()

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def rank(self, rank: int | None, *before: str, **variables: object) -> Rank:
        """``before``: words of a command that starts it."""
        kept = ("PATH", "PYTHONPATH")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {} if rank is None else {"RANK": str(rank)}
        process = subprocess.Popen(
            [*self.inside, *before, sys.executable, "-c", _OBEYS],
            env={**environment, **{name: str(value) for name, value in variables.items()}},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(_end, process)
        return Rank(process)

    def container(self) -> Container:
        holder = subprocess.Popen([*_UNSHARE, "sleep", "infinity"])
        self._stack.callback(_end, holder)
        first = wait_for(lambda: procfs.descendants([holder.pid])[holder.pid], "the container")[0]
        wait_for(lambda: procfs.command_line(first)[:1] == ["sleep"], "its first process")
        return Container(self._stack, first)

    def network(self) -> Network:
        return Network(self.container())


class Container(Machine):
    """A network and numbers of processes of its own."""

    def __init__(self, stack: ExitStack, first: int) -> None:
        super().__init__(stack)
        self.first = first
        self.inside = ("nsenter", f"--target={first}", "--net", "--pid", "--mount")
        self.ip("link", "set", "lo", "up")

    def ip(self, *words: str) -> None:
        # Processes have the host's numbers for it.
        network = ["nsenter", f"--target={self.first}", "--net"]
        subprocess.run([*network, "ip", *words], check=True, capture_output=True)


class Network:
    """A private network, such as Docker's: others may have the same addresses."""

    def __init__(self, switch: Container) -> None:
        self._switch = switch
        self._ports = 0
        switch.ip("link", "add", "br0", "type", "bridge")
        switch.ip("link", "set", "br0", "up")

    def join(self, container: Container, address: str) -> None:
        self._ports += 1
        port = f"port{self._ports}"
        cable = ["link", "add", port, "type", "veth", "peer", "eth0"]
        self._switch.ip(*cable, "netns", str(container.first))
        self._switch.ip("link", "set", port, "master", "br0", "up")
        container.ip("addr", "add", f"{address}/24", "dev", "eth0")
        container.ip("link", "set", "eth0", "up")


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    for pid in [*procfs.descendants([process.pid])[process.pid], process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@pytest.fixture
def machine() -> Iterator[Machine]:
    with ExitStack() as stack:
        yield Machine(stack)
