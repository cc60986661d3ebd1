"""Supervises jobs whose ranks are started by a command, and are its children, not ours.

``python -m hanglab.harness.launchers.supervision.command_ranks DESCRIPTOR`` supervises them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hanglab.harness.launchers.supervision.channel import Message, readable
from hanglab.harness.launchers.supervision.descendants import children_of, watch_process
from hanglab.harness.launchers.supervision.root import RootSupervisor, SupervisionRequest
from hanglab.harness.launchers.supervision.supervisor import Supervisor, decode_status
from hanglab.recorder.system import procfs

#: For the command to start the ranks, on a busy machine: torchrun imports torch and meets itself.
_RANKS_S = 120.0
#: Bytes of the command's own output that belong into an error.
_TAIL = 2000
#: Between two looks for ranks that have not been seen yet.
_LOOK_S = 0.05


@dataclass(frozen=True)
class _Rank:
    number: int
    #: Readable once the process has ended; None on old kernels.
    handle: int | None


class CommandedRanks:
    """Ranks below one command, recognised by the RANK in their environment."""

    def __init__(self, command: int, world_size: int, log_dir: Path) -> None:
        self._command: int | None = command
        self._log_dir = log_dir
        self._world_size = world_size
        self._missing = set(range(world_size))
        self._ranks: dict[int, _Rank] = {}
        self._until = time.monotonic() + _RANKS_S
        self._failed = False

    @property
    def interval_s(self) -> float | None:
        blind = any(rank.handle is None for rank in self._ranks.values())
        return _LOOK_S if blind or (self._missing and not self._failed) else None

    def reaped(self, pid: int, status: int) -> Iterable[Message]:
        if pid in self._ranks:  # an orphan: the command died before it
            yield self._ended(pid, status)
        if pid == self._command:
            self._command = None
            if self._missing:
                code, number = decode_status(status)
                how = f"with code {code}" if number is None else f"by signal {number}"
                yield from self._fail(f"the command ended {how} before it had started all ranks")

    def watched(self) -> Iterable[int]:
        return [rank.handle for rank in self._ranks.values() if rank.handle is not None]

    def look(self) -> Iterable[Message]:
        if self._missing and self._command is not None:
            yield from self._find()
            if self._missing and time.monotonic() > self._until:
                yield from self._fail(f"the command did not start all ranks in {_RANKS_S:.0f} s")
        for pid, rank in list(self._ranks.items()):
            over = procfs.has_ended(pid)
            if rank.handle is not None:
                over = bool(readable(rank.handle, timeout=0))
            # One that is our own child by now has a status that is still to be reaped.
            if over and pid not in children_of(os.getpid()):
                yield self._ended(pid, _status_of(pid))

    def _find(self) -> Iterable[Message]:
        started = children_of(self._command or 0)
        for place, pid in enumerate(started):
            number = _rank_of(pid)
            if number is None and len(started) == self._world_size and procfs.state(pid) == "Z":
                number = place  # over before it could be asked; ranks are started in order
            if pid in self._ranks or number not in self._missing:
                continue
            self._missing.discard(number)
            self._ranks[pid] = _Rank(number, watch_process(pid))
            yield {"event": "rank", "rank": number, "pid": pid}
            self._link_logs(pid, number)

    def _link_logs(self, pid: int, rank: int) -> None:
        """Gives the files that the command chose the names that ranks' logs have everywhere."""
        for descriptor, suffix in ((1, "out"), (2, "err")):
            target = procfs.open_file(pid, descriptor)
            with suppress(OSError, ValueError):
                link = self._log_dir / f"rank{rank}.{suffix}"
                link.symlink_to(os.path.relpath(target, self._log_dir))

    def _ended(self, pid: int, status: int | None) -> Message:
        rank = self._ranks.pop(pid)
        if rank.handle is not None:
            os.close(rank.handle)
        code, number = (None, None) if status is None else decode_status(status)
        return {"event": "exit", "rank": rank.number, "code": code, "signal": number}

    def _fail(self, error: str) -> Iterable[Message]:
        if not self._failed:
            self._failed = True
            with suppress(OSError):
                last = (self._log_dir / "command.err").read_bytes()[-_TAIL:]
                error += "\n" + last.decode(errors="replace").rstrip()
            yield {"event": "failed", "error": error}


def _rank_of(pid: int) -> int | None:
    value = procfs.environment(pid).get("RANK", "")
    return int(value) if value.isdecimal() else None


def _status_of(pid: int) -> int | None:
    """The wait status of a process that has ended and that its parent has not collected yet."""
    stat = procfs.stat(pid)
    return stat.exit_status if stat is not None and stat.state == "Z" else None


def run_job(request: SupervisionRequest) -> None:
    """Supervises one job.  Does not return."""
    supervisor = Supervisor(request.end, request.hanglab)
    order = supervisor.order()
    log_dir = Path(order["log_dir"])
    try:
        os.chdir(order["folder"])
        command = _spawn(order["command"], order["environment"], log_dir)
        ranks = CommandedRanks(command, order["world_size"], log_dir)
        supervisor.tell_started({})
        supervisor.watch(ranks, order["limit_s"])
    except Exception as error:
        supervisor.fail(error)
    supervisor.finish(ranks)


def _spawn(command: list[str], environment: dict[str, str], log_dir: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        command[0],
        command,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_dir / "command.out"), flags, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, str(log_dir / "command.err"), flags, 0o600),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ),
    )


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    run_job(RootSupervisor(control).serve())


if __name__ == "__main__":
    main()
