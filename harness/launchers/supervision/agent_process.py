"""The recorder's agent as the harness drives it: commands in, events out, one JSON line each."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hanglab.harness.errors import HanglabError
from hanglab.recorder.attach.tree import FoundRank

#: Writing the manifest checksums every file; dumps of a few ranks take milliseconds.
FINISH_S = 20.0


class AgentDied(HanglabError, RuntimeError):
    """The recorder's agent ended before it was told to."""

    advice = "Its own words are in the job's log/agent.err; please report them."


class Agent:
    """One agent process beside the ranks of one job."""

    def __init__(
        self,
        case: Path,
        runtime: Path | None,
        *,
        world_size: int | None,
        hang_after_s: float,
        log: Path,
        options: Sequence[str] = (),
        starter: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``starter``: words of a command that runs it elsewhere, and carries what is said.

        Without ``runtime`` it takes the folder that its host's ranks have for the Case.
        """
        command = [*starter, sys.executable, "-m", "hanglab.recorder.agent", "--case", str(case)]
        command += ["--runtime", str(runtime)] if runtime is not None else []
        command += ["--hang-after", str(hang_after_s), *options]
        if world_size is not None:
            command += ["--world-size", str(world_size)]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # `-m` searches the working directory first; this one holds no modules.
                cwd=case,
                env=environment,
                # Ctrl-C in a terminal is for hanglab, which tells the agent what to do.
                start_new_session=True,
            )
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        #: Process ids as the ranks registered them.
        self.pids: dict[int, int] = {}
        #: The trigger of the capture, once it is done.
        self.captured: dict[str, Any] | None = None
        #: After a capture for another reason, nothing has moved for as long as a hang takes.
        self.stuck = False
        self._status: dict[str, Any] | None = None
        #: Called with every event that is taken in.
        self.hear: Callable[[dict[str, Any]], None] | None = None
        self._reader = threading.Thread(target=self._read, name="agent events", daemon=True)
        self._reader.start()

    def poll(self) -> bool:
        """Takes in the events that have come; True once the capture is done.

        Raises AgentDied.
        """
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return self.captured is not None
            if event is None:
                raise AgentDied(f"The recorder's agent ended with {self._process.wait()}.")
            self._take(event)

    def wait_captured(self, timeout_s: float) -> bool:
        """Waits for the capture that was asked for.  Raises AgentDied."""
        return self._wait("captured", timeout_s)

    def capture(self, kind: str, detail: str) -> None:
        self.order({"command": "capture", "kind": kind, "detail": detail})

    @property
    def processes(self) -> list[int]:
        """Those of it that are children of this process."""
        return [self._process.pid]

    def seek_below(self, pid: int) -> None:
        """Have it look for ranks below a process that nobody reports the exits of."""
        self.order({"command": "tree", "pid": pid})

    def adopt(self, found: FoundRank) -> None:
        """Have it watch a rank that nobody has recorded so far."""
        self.order(
            {
                "command": "adopt",
                "pid": found.pid,
                "rank": found.rank,
                "world_size": found.world_size,
                "local_rank": found.local_rank,
                "attempt": found.attempt,
            }
        )

    def quiet_s(self, timeout_s: float) -> float | None:
        """Seconds without movement; None without an answer in time.  Raises AgentDied."""
        self._status = None
        self.order({"command": "status"})
        if not self._wait("status", timeout_s) or self._status is None:
            return None
        return float(self._status.get("quiet_s", 0.0))

    def interrupted(self) -> None:
        """Say that the job is being sent a signal that asks it to end."""
        self.order({"command": "interrupted"})

    def ending(self) -> None:
        """Say that hanglab ends the ranks now."""
        self.order({"command": "ending"})

    def moved_since_capture(self, timeout_s: float) -> bool | None:
        """True if the job has moved since the capture; None without an answer in time.

        Raises AgentDied.
        """
        self._status = None
        self.order({"command": "status"})
        if not self._wait("status", timeout_s) or self._status is None:
            return None
        return bool(self._status.get("moved"))

    def exited(
        self,
        rank: int,
        code: int | None,
        signal: int | None,
        stderr: Path,
        *,
        by_recorder: bool,
    ) -> None:
        self.order(
            {
                "command": "exited",
                "rank": rank,
                "attempt": 0,
                "code": code,
                "signal": signal,
                "by_recorder": by_recorder,
                "stderr": str(stderr),
            }
        )

    def finish(self, *, ended_by_recorder: bool) -> None:
        """Lets it write the manifest, and waits for its end.  Raises AgentDied."""
        self.order({"command": "finish", "ended_by_recorder": ended_by_recorder})
        if not self._wait("finished", FINISH_S):
            raise AgentDied(f"The recorder's agent did not finish within {FINISH_S:g} s.")

    def close(self, patience_s: float = FINISH_S) -> None:
        """Ends the agent, at once if it does not end by itself."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        until = time.monotonic() + patience_s
        # Its events end when it does: a wait with a limit looks only now and then, 20 ms late.
        self._reader.join(patience_s)
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def order(self, command: Mapping[str, object]) -> None:
        """Sends a command of :mod:`hanglab.recorder.agent.driver_channel`."""
        assert self._process.stdin is not None
        # A broken pipe shows as the end of the agent's events.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._process.stdin.fileno(), msgspec.json.encode(command) + b"\n")

    def _wait(self, name: str, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while name != "captured" or self.captured is None:
            try:
                event = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return False
            if event is None:
                raise AgentDied(f"The recorder's agent ended with {self._process.wait()}.")
            self._take(event)
            if event.get("event") == name:
                return True
        return True

    def _take(self, event: dict[str, Any]) -> None:
        if self.hear is not None:
            self.hear(event)
        if event.get("event") == "rank":
            self.pids[int(event["rank"])] = int(event["pid"])
        elif event.get("event") == "captured":
            self.captured = event.get("trigger") or {}
        elif event.get("event") == "resumed":
            self.captured = None
        elif event.get("event") == "stuck":
            self.stuck = True
        elif event.get("event") == "status":
            self._status = event

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(event, dict):
                self._events.put(event)
        self._events.put(None)
