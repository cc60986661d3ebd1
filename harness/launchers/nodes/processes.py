"""Processes of a job on one node: its ranks and the recorder beside them, under one parent.

hanglab says what is to be done over a channel, and hears over it how they get on.  When that
channel is at its end hanglab is gone, and so is everything that was started here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from hanglab.harness.launchers.supervision.channel import ChannelClosed, Message, readable
from hanglab.harness.launchers.supervision.descendants import ChildSignal
from hanglab.harness.launchers.supervision.supervisor import decode_status

#: For processes that were killed to be gone.
_END_S = 5.0
#: For the recorder's agent to put its part of the Case in order.
_AGENT_S = 20.0


class NodeChannel(Protocol):
    """A channel to hanglab."""

    def fileno(self) -> int: ...

    def send(self, message: Message) -> None: ...

    def receive(self, timeout: float) -> Message | None: ...


@dataclass(frozen=True)
class NodePaths:
    """Folders as the node sees them."""

    case: Path
    log: Path
    #: TMPDIR of the ranks, and the recorder's runtime folder.
    temporary: Path

    @property
    def dumps(self) -> str:
        """Path of torch's own dumps without the rank at its end."""
        return f"{self.log}/timeout_dump_rank"

    @property
    def pipes(self) -> str:
        """Path of torch's pipes for dumps without the rank and ``.pipe`` at its end."""
        return f"{self.temporary}/dump_rank"


class NodeProcesses:
    """Everything of the job that runs on this node besides this process."""

    def __init__(self, order: dict[str, Any], link: NodeChannel, paths: NodePaths) -> None:
        """``order``: number, ranks, world_size, script, function, arguments, wrap, limit_s."""
        self._order = order
        self._paths = paths
        self._link = link
        self._woken = ChildSignal()
        self._until = time.monotonic() + order["limit_s"]
        self._ranks: dict[int, int] = {}
        self._gates: dict[int, int] = {}
        self._agent: subprocess.Popen[bytes] | None = None
        self._spoken = b""
        #: What the agent has to be told once it is there.
        self._untold: list[Message] = []
        self._ending = False

    # What nodes of one kind or another do in their own way.

    def rank_environment(self, rank: int) -> dict[str, str]:
        """Environment of a rank, less the variables that say which one it is."""
        return dict(os.environ)

    def others(self) -> Collection[int]:
        """Processes that are to end with the ranks, and have not yet."""
        raise NotImplementedError

    def gone(self) -> NoReturn:
        """hanglab is gone, or the time is up: ends everything that was started here."""
        raise NotImplementedError

    def left(self) -> None:
        """Clears up; this process ends at once."""

    def cleared(self) -> None:
        """The ranks have ended, and what was below them."""

    def asked_to_end(self) -> None:
        """Somebody has sent SIGTERM."""
        self.gone()

    def look(self) -> float:
        """Does what is due; returns after how many seconds to ask again, if nothing happens."""
        return 1.0

    def obey(self, message: Message) -> None:
        """Carries out a command that not all nodes know."""

    # Life.

    def run(self) -> NoReturn:
        signal.signal(signal.SIGTERM, lambda *_: None)  # seen in `drain`
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._paths.temporary.mkdir(mode=0o700, exist_ok=True)
        for rank in self._order["ranks"]:
            self._start(rank)
        self.tell({"event": "started", "pids": {rank: pid for pid, rank in self._ranks.items()}})
        while time.monotonic() < self._until:
            agent = self._agent.stdout if self._agent is not None else None
            ready = readable(self._link, self._woken, agent, timeout=self.look())
            if self._woken.fileno() in ready:
                if signal.SIGTERM in self._woken.drain():
                    self.asked_to_end()
                self._reap()
            if agent is not None and agent.fileno() in ready:
                self._relay(agent.fileno())
            if self._link.fileno() in ready:
                try:
                    while (message := self._link.receive(0)) is not None:
                        self._obey(message)
                except ChannelClosed:
                    break
        self.gone()

    def _start(self, rank: int) -> None:
        """Starts a rank, which prepares itself and then waits at its gate."""
        order = self._order
        waiting, gate = os.pipe2(os.O_CLOEXEC)
        os.set_inheritable(waiting, True)
        local = order["ranks"].index(rank)
        own = self.rank_environment(rank)
        environment = {
            **own,
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(len(order["ranks"])),
            "PYTHONPATH": with_hook(own.get("PYTHONPATH")),
        }
        command = [sys.executable, "-m", "hanglab.harness.launchers.nodes.gated_rank", str(waiting)]
        command += [order["script"], order["function"] or "", *order["arguments"]]
        command = [*order["wrap"], *command]
        # Here rather than in the new process, so that an error names the file.
        logs = [_log(f"{self._paths.log}/rank{rank}.{stream}") for stream in ("out", "err")]
        pid = os.posix_spawnp(
            command[0],
            command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, logs[0], 1),
                (os.POSIX_SPAWN_DUP2, logs[1], 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ),
        )
        for descriptor in (waiting, *logs):
            os.close(descriptor)
        self._ranks[pid] = rank
        self._gates[rank] = gate

    # What hanglab says.

    def _obey(self, message: Message) -> None:
        command = message["command"]
        if command == "go":
            line = json.dumps(message["environment"]).encode() + b"\n"
            for gate in self._gates.values():
                with suppress(BrokenPipeError):
                    os.write(gate, line)
                os.close(gate)
            self._gates.clear()
        elif command == "record":
            self._record(message["hang_after_s"])
        elif command == "agent":
            self._tell_agent(message["line"])
        elif command == "end":
            self.end_ranks()
        elif command == "leave":
            self._leave()
        else:
            self.obey(message)

    def _record(self, hang_after_s: float) -> None:
        paths = self._paths
        command = [sys.executable, "-m", "hanglab.recorder.agent", "--several"]
        command += ["--case", str(paths.case), "--runtime", str(paths.temporary)]
        command += ["--hang-after", str(hang_after_s)]
        command += ["--world-size", str(self._order["world_size"])]
        command += ["--dumps", paths.dumps, "--pipes", paths.pipes]
        with open(f"{paths.log}/agent{self._order['number']}.err", "ab") as errors:
            self._agent = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=paths.case,
                env={**os.environ, "TMPDIR": str(paths.temporary)},
                start_new_session=True,
            )
        untold, self._untold = self._untold, []
        for line in untold:
            self._tell_agent(line)

    def _tell_agent(self, line: Message) -> None:
        if self._agent is None:
            self._untold.append(line)
            return
        assert self._agent.stdin is not None
        with suppress(OSError):
            os.write(self._agent.stdin.fileno(), json.dumps(line).encode() + b"\n")

    def _relay(self, descriptor: int) -> None:
        """Hands on what the agent says; its lines are JSON objects."""
        block = os.read(descriptor, 1 << 16)
        if not block:
            assert self._agent is not None and self._agent.stdout is not None
            self._agent.stdout.close()
            code = self._agent.wait()
            self._agent = None
            self.tell({"event": "agent_ended", "code": code})
            return
        *lines, self._spoken = (self._spoken + block).split(b"\n")
        for line in lines:
            with suppress(ValueError):
                self.tell({"event": "agent", "line": json.loads(line)})

    # Ends.

    def _reap(self) -> None:
        agent = self._agent.pid if self._agent is not None else 0
        while True:
            with suppress(ChildProcessError):
                # The agent's end shows in its pipe, and belongs to its Popen.
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is not None and found.si_pid != agent:
                    self._reaped(*os.waitpid(found.si_pid, 0))
                    continue
            return

    def _reaped(self, pid: int, status: int) -> None:
        rank = self._ranks.pop(pid, None)
        if rank is None:
            return
        if rank in self._gates:
            os.close(self._gates.pop(rank))
        code, number = decode_status(status)
        self.tell(
            {
                "event": "exit",
                "rank": rank,
                "code": code,
                "signal": number,
                "by_hanglab": self._ending,
            }
        )
        self._tell_agent(
            {
                "command": "exited",
                "rank": rank,
                "code": code,
                "signal": number,
                "by_recorder": self._ending,
                "stderr": f"{self._paths.log}/rank{rank}.err",
            }
        )

    def end_ranks(self) -> None:
        """Ends the ranks and everything below them, and says what would not end."""
        self._reap()
        self._ending = True
        until = time.monotonic() + _END_S
        while (left := self.others()) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            readable(self._woken, timeout=0.05)
            self._woken.drain()
            self._reap()
        self.cleared()
        self.tell({"event": "ended", "left": sorted(left)})

    def _leave(self) -> NoReturn:
        """Lets the agent finish, and ends this process."""
        self.tell({"event": "leaving"})
        if self._agent is not None:
            assert self._agent.stdin is not None and self._agent.stdout is not None
            self._agent.stdin.close()
            until = time.monotonic() + _AGENT_S
            while self._agent is not None and time.monotonic() < until:
                if readable(self._agent.stdout, timeout=1.0):
                    self._relay(self._agent.stdout.fileno())
        self.left()
        os._exit(0)

    @property
    def agent(self) -> int | None:
        """Process of the recorder's agent, while there is one."""
        return self._agent.pid if self._agent is not None else None

    @property
    def ranks(self) -> dict[int, int]:
        """Process of each rank that has not ended."""
        return {rank: pid for pid, rank in self._ranks.items()}

    def tell(self, message: Message) -> None:
        """Says something to hanglab, if it is there."""
        # Nobody listens any more: the loop finds out by itself.
        with suppress(ChannelClosed):
            self._link.send(message)


def _log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def with_hook(path: str | None) -> str:
    """A PYTHONPATH whose first folder starts the recorder in every rank."""
    from hanglab.recorder import rank as recorder

    folder = str(recorder.hook_dir())
    return folder if not path else folder + os.pathsep + path
