"""The agent's profiling side: it answers the job's Kineto, and ``hanglab profile``.

Standing beside the recording, never in its way: whatever fails here is an
absence in the Case.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hanglab.recorder.agent.watched import WatchedRank
from hanglab.recorder.profiling import notes
from hanglab.recorder.profiling.access import Refused
from hanglab.recorder.profiling.registry import Client
from hanglab.recorder.profiling.service import ProfilingService, Settings

#: For so long after a trace a rank's I/O is taken for the profiler's, in seconds.
_AFTERWARDS_S = 1.5


class Profiles:
    """Serves the socket in the job's runtime folder, until closed."""

    def __init__(
        self,
        case: Path,
        runtime: Path,
        host: str,
        ranks: Callable[[], Sequence[WatchedRank]],
        miss: Callable[[str, str], None],
    ) -> None:
        """``ranks`` gives those that are watched; ``miss`` takes what could not be had."""
        self._case = case
        self._ranks = ranks
        self._traces = runtime / "traces"
        self._service: ProfilingService | None = None
        self._note: Path | None = None
        self._traced: dict[int, float] = {}
        token = secrets.token_hex()
        try:
            self._service = ProfilingService(
                Settings(root=self._traces, host=host, socket_folder=runtime, token=token),
                registered=self._registered,
                rank_folder=self._folder,
                at_work=self._at_work,
            )
            self._note = notes.leave(
                notes.own(
                    self._service.port,
                    token=token,
                    case=str(case.resolve()),
                    socket_folder=str(runtime),
                )
            )
        except (OSError, Refused) as error:
            miss("traces", f"running processes cannot be profiled: {error}")

    def overlook(self) -> None:
        """Keep traces that ranks write from counting as movement of the job."""
        now = time.monotonic()
        for rank in self._ranks():
            if now - self._traced.get(rank.pid, -_AFTERWARDS_S) < _AFTERWARDS_S:
                rank.overlook_io()

    def close(self) -> None:
        if self._service is not None:
            self._service.close()
        if self._note is not None:
            with contextlib.suppress(OSError):
                self._note.unlink()
        shutil.rmtree(self._traces, ignore_errors=True)

    def _registered(self, pid: int) -> tuple[int, int | None, str] | None:
        rank = self._rank(pid)
        if rank is None:
            return None
        return rank.rank, rank.process.world_size, self._case.name

    def _folder(self, client: Client) -> Path | None:
        rank = self._rank(client.identity.pid)
        return rank.folder if rank is not None else None

    def _at_work(self, client: Client) -> None:
        if client.identity.pid is not None:
            self._traced[client.identity.pid] = time.monotonic()

    def _rank(self, pid: int | None) -> WatchedRank | None:
        return next((rank for rank in self._ranks() if rank.pid == pid), None)
