"""The first process of a node's container: starts its ranks and the recorder beside them.

``python -m hanglab.harness.launchers.docker.node_main ORDER``, where ORDER is a
JSON file as :mod:`hanglab.harness.launchers.docker.orders` writes it.

hanglab talks to it over a socket in a folder that both see, so that no fault of
the network cuts them off, and that the Docker daemon may be away.  When hanglab
is gone the container ends, and everything in it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hanglab.harness.launchers.docker import container_paths
from hanglab.harness.launchers.supervision.channel import (
    ChannelClosed,
    Message,
    MessageChannel,
    readable,
)
from hanglab.harness.launchers.supervision.descendants import ChildSignal
from hanglab.harness.launchers.supervision.supervisor import decode_status

#: For processes that were killed to be gone.
_END_S = 5.0
#: For the recorder's agent to put its part of the Case in order.
_AGENT_S = 20.0


class NodeProcesses:
    """Everything that runs in this container besides this process."""

    def __init__(self, order: dict[str, Any], link: MessageChannel) -> None:
        self._order = order
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

    def run(self) -> NoReturn:
        signal.signal(signal.SIGTERM, lambda *_: None)  # Docker asks to end: seen in `drain`
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        Path(container_paths.TEMPORARY).mkdir(mode=0o700, exist_ok=True)
        for rank in self._order["ranks"]:
            self._start(rank)
        self._tell({"event": "started", "pids": {rank: pid for pid, rank in self._ranks.items()}})
        while time.monotonic() < self._until:
            agent = self._agent.stdout if self._agent is not None else None
            ready = readable(self._link, self._woken, agent, timeout=1.0)
            if self._woken.fileno() in ready:
                if signal.SIGTERM in self._woken.drain():
                    break
                self._reap()
            if agent is not None and agent.fileno() in ready:
                self._relay(agent.fileno())
            if self._link.fileno() in ready:
                try:
                    while (message := self._link.receive(0)) is not None:
                        self._obey(message)
                except ChannelClosed:
                    break
        os._exit(1)  # nobody waits for anything any more, and all that runs here ends with it

    def _start(self, rank: int) -> None:
        """Starts a rank, which prepares itself and then waits at its gate."""
        order = self._order
        waiting, gate = os.pipe2(os.O_CLOEXEC)
        os.set_inheritable(waiting, True)
        local = order["ranks"].index(rank)
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(len(order["ranks"])),
            "PYTHONPATH": container_paths.with_hook(os.environ.get("PYTHONPATH")),
        }
        command = [sys.executable, "-m", "hanglab.harness.launchers.docker.rank_main", str(waiting)]
        command += [order["script"], order["function"] or "", *order["arguments"]]
        command = [*order["wrap"], *command]
        # Here rather than in the new process, so that an error names the file.
        logs = [_log(f"{container_paths.LOG}/rank{rank}.{stream}") for stream in ("out", "err")]
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
            self._end()
        elif command == "leave":
            self._leave()

    def _record(self, hang_after_s: float) -> None:
        command = [sys.executable, "-m", "hanglab.recorder.agent", "--several"]
        command += ["--case", container_paths.CASE, "--runtime", container_paths.TEMPORARY]
        command += ["--hang-after", str(hang_after_s)]
        command += ["--world-size", str(self._order["world_size"])]
        command += ["--dumps", container_paths.DUMPS, "--pipes", container_paths.PIPES]
        with open(f"{container_paths.LOG}/agent{self._order['number']}.err", "ab") as errors:
            self._agent = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=container_paths.CASE,
                env={**os.environ, "TMPDIR": container_paths.TEMPORARY},
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
            self._tell({"event": "agent_ended", "code": code})
            return
        *lines, self._spoken = (self._spoken + block).split(b"\n")
        for line in lines:
            with suppress(ValueError):
                self._tell({"event": "agent", "line": json.loads(line)})

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
        self._tell(
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
                "stderr": f"{container_paths.LOG}/rank{rank}.err",
            }
        )

    def _end(self) -> None:
        """Ends the ranks and everything below them, and says what would not end."""
        self._reap()
        self._ending = True
        until = time.monotonic() + _END_S
        spared = {os.getpid()}
        if self._agent is not None:
            spared |= {self._agent.pid, *container_paths.below(self._agent.pid)}
        while (left := container_paths.everyone() - spared) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            readable(self._woken, timeout=0.05)
            self._woken.drain()
            self._reap()
        self._tell({"event": "ended", "left": sorted(left)})

    def _leave(self) -> NoReturn:
        """Lets the agent finish; the end of this process is that of the container."""
        self._tell({"event": "leaving"})
        if self._agent is not None:
            assert self._agent.stdin is not None and self._agent.stdout is not None
            self._agent.stdin.close()
            until = time.monotonic() + _AGENT_S
            while self._agent is not None and time.monotonic() < until:
                if readable(self._agent.stdout, timeout=1.0):
                    self._relay(self._agent.stdout.fileno())
        sys.stdout.flush()
        os._exit(0)

    def _tell(self, message: Message) -> None:
        # Nobody listens any more: the loop finds out by itself.
        with suppress(ChannelClosed):
            self._link.send(message)


def _log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.connect(container_paths.LINK)
    link = MessageChannel(end)
    link.send({"event": "hello", "node": order["number"]})
    try:
        NodeProcesses(order, link).run()
    except OSError as error:
        link.send({"event": "failed", "error": f"{error.strerror or error}: {error.filename}"})
        raise


if __name__ == "__main__":
    main()
