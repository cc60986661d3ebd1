"""Real jobs under the recorder, and the agent beside them, for tests to observe."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conditions import PATIENCE_S, wait_for

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader, RankCase
from hanglab.recorder.rank import process
from hanglab.recorder.rank.progress_file import ProgressFile

PROGRAMS = Path(__file__).parent / "programs"


class WarmParent:
    """The process that forks ranks.  It ends with the test session, and its ranks with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "warm_parent.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )
        self.pids: dict[int, int] = {}
        self.status: dict[int, int] = {}
        assert self._process.stdout is not None
        self._process.stdout.readline()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "pid" in told:
                self.pids[told["rank"]] = told["pid"]
            else:
                self.status[told["ended"]] = told["status"]

    def start(self, job: dict[str, Any]) -> dict[int, int]:
        """Start a job; process ids by rank."""
        self.pids = {}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        wait_for(lambda: len(self.pids) == job["world_size"], "the ranks to be forked")
        return dict(self.pids)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)


class Agent:
    """The agent process, its events in a queue."""

    def __init__(self, case: Path, runtime: Path, *options: str) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "hanglab.recorder.agent",
                "--case", str(case), "--runtime", str(runtime), *options,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self.events: list[dict[str, Any]] = []
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._queue.put(json.loads(line))

    def tell(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def wait(self, event: str, patience: float = PATIENCE_S) -> dict[str, Any]:
        """The next event of this kind; others are kept in ``events``."""
        deadline = time.monotonic() + patience
        while True:
            told = self._queue.get(timeout=max(0.01, deadline - time.monotonic()))
            self.events.append(told)
            if told["event"] == event:
                return told

    def finish(self, ended_by_recorder: bool = False) -> dict[str, Any]:
        self.tell(command="finish", ended_by_recorder=ended_by_recorder)
        event = self.wait("finished")
        assert self._process.wait(PATIENCE_S) == 0
        return event

    def close_input(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


def play_rank(case: Path, pid: int) -> ProgressFile:
    """Register a process as rank 0, as if it recorded itself."""
    folder = folders.make_private(folders.rank_folder(case, os.uname().nodename, 0))
    progress = ProgressFile(folder / files.PROGRESS.name)
    progress.identify(0, 0, 1)
    progress.counters([(0, 1, 1)])
    description = {**process.description(0, 1, 0, 0), "pid": pid}
    folders.write_whole(folder / files.PROCESS.name, json.dumps(description).encode())
    return progress


class Job:
    """One running job, its folders, and its agent if it has one."""

    def __init__(
        self,
        warm_parent: WarmParent,
        folder: Path,
        runtime: Path,
        program: str,
        world_size: int,
        environment: dict[str, str],
        agent: tuple[str, ...] | None,
        record: bool,
    ) -> None:
        self.case = folder / "case"
        self.runtime = runtime
        self._warm_parent = warm_parent
        self.agent: Agent | None = None
        if agent is not None:
            self.agent = Agent(self.case, runtime, "--world-size", str(world_size), *agent)
            self.agent.wait("ready")
        # What a rank prints may be read before it has begun.
        for rank in range(world_size):
            for ending in ("out", "err"):
                (runtime / f"rank{rank}.{ending}").touch()
        self.pids = warm_parent.start(
            {
                "program": str(PROGRAMS / program),
                "world_size": world_size,
                "record": record,
                "environment": {
                    "HANGLAB_CASE": str(self.case),
                    "HANGLAB_RUNTIME": str(runtime),
                    "STORE": str(runtime / "store"),
                    "TMPDIR": str(runtime),
                    **environment,
                },
            }
        )

    def read(self) -> CaseReader:
        return CaseReader(self.case)

    def rank(self, rank: int) -> RankCase:
        return next(r for r in self.read().ranks if r.rank == rank)

    def ended(self, rank: int) -> bool:
        return self.pids[rank] in self._warm_parent.status

    def status(self, rank: int) -> int:
        """As waitpid gives it; waits for the end."""
        wait_for(lambda: self.ended(rank), f"rank {rank} to end")
        return self._warm_parent.status[self.pids[rank]]

    def printed(self, rank: int) -> str:
        return (self.runtime / f"rank{rank}.out").read_text()

    def report(self, rank: int, **how: Any) -> None:
        """Tell the agent how a rank ended, as a launcher would."""
        assert self.agent is not None
        stderr = str(self.runtime / f"rank{rank}.err")
        self.agent.tell(command="exited", rank=rank, attempt=0, stderr=stderr, **how)

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[rank], number)

    def close(self) -> None:
        for pid in self.pids.values():
            if pid not in self._warm_parent.status:
                # Loader workers live in the session that the rank leads.
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
        for rank in self.pids:
            self.status(rank)
        if self.agent is not None:
            self.agent.close()


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a unix socket's address."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
