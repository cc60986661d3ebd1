"""The agent's profiling side: it answers the job's Kineto, and ``hanglab profile``.

Standing beside the recording, never in its way: whatever fails here is an
absence in the Case.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress import NotProgress, read_progress
from hanglab.recorder.profiling import agent_notes, wire
from hanglab.recorder.profiling.access_control import MIN_TOKEN, Refused, is_loopback
from hanglab.recorder.profiling.configuration import Detail
from hanglab.recorder.profiling.registry import Client
from hanglab.recorder.profiling.service import ProfilingService, Settings
from hanglab.recorder.profiling.trace_records import ProfileRequest, Selection
from hanglab.recorder.profiling.triggers import Limiter, SlownessFlags, slow_stretch
from hanglab.recorder.rank.profile_request import PATTERN

#: For so long after a trace a rank's I/O is taken for the profiler's, in seconds.
_AFTERWARDS_S = 1.5
#: Seconds between two looks for something to do.
_LOOK_S = 0.5
#: Different reasons for missing traces that a Case has at most.
_MOST_TROUBLES = 20


def open_endpoint(settings: Settings) -> Settings:
    """The settings, beyond loopback too if the environment of ``hanglab record`` says so.

    HANGLAB_LISTEN=ADDRESS with the token in the file HANGLAB_TOKEN_FILE, and TLS by
    HANGLAB_TLS_CERTIFICATE and HANGLAB_TLS_KEY.  Raises OSError, and Refused without a token.
    """
    address = os.environ.get("HANGLAB_LISTEN")
    if not address:
        return settings
    token = os.environ.get("HANGLAB_TOKEN_FILE")
    if not token and not is_loopback(address):
        raise Refused(f"to listen on {address} a token is needed (HANGLAB_TOKEN_FILE)")
    certificate, key = (os.environ.get(f"HANGLAB_TLS_{it}") for it in ("CERTIFICATE", "KEY"))
    secret = Path(token).read_text(encoding="utf-8").strip() if token else settings.token
    if len(secret or "") < MIN_TOKEN:
        raise Refused(f"the token in {token} has less than {MIN_TOKEN} characters")
    return replace(
        settings,
        addresses=(address,) if address == "0.0.0.0" else ("127.0.0.1", address),
        port=wire.PORT,
        token=secret,
        certificate=Path(certificate).resolve() if certificate else None,
        key=Path(key) if key else None,
    )


class Profiles:
    """Serves the socket in the job's runtime folder, until closed."""

    def __init__(
        self,
        case: Path,
        runtime: Path,
        host: str,
        ranks: Callable[[], Sequence[WatchedRank]],
        miss: Callable[[str, str], None],
        slow_factor: float | None = None,
    ) -> None:
        """``ranks`` gives those that are watched; ``miss`` takes what could not be had.

        With a ``slow_factor`` a section or step that takes so many times its median
        has a trace taken of all ranks, and a rank that the job's straggler detector
        calls slow one of itself.
        """
        self._case = case
        self._runtime = runtime
        self._miss = miss
        self._slow_factor = slow_factor
        self._limiter = Limiter()
        self._flags = SlownessFlags()
        self._looked_ns = time.time_ns()
        self._last_look = 0.0
        self._pool = ThreadPoolExecutor(1, "hanglab-profiles")
        self._ranks = ranks
        self._traces = runtime / "traces"
        self._service: ProfilingService | None = None
        self._note: Path | None = None
        self._traced: dict[int, float] = {}
        self._troubles: set[str] = set()
        try:
            settings = open_endpoint(
                Settings(self._traces, host, runtime, token=secrets.token_hex())
            )
            self._service = ProfilingService(
                settings,
                registered=self._registered,
                rank_folder=self._folder,
                at_work=self._at_work,
                trouble=self._trouble,
            )
            self._note = agent_notes.leave(
                agent_notes.own(
                    self._service.port,
                    settings.addresses,
                    token=settings.token,
                    authority=str(settings.certificate) if settings.certificate else None,
                    case=str(case.resolve()),
                    socket_folder=str(runtime),
                )
            )
        except Exception as error:
            # Out of descriptors or threads, or what nobody thought of: the recording goes on.
            self._trouble(f"running processes cannot be profiled: {error}")

    def look(self) -> None:
        """Take up what the job asks for, and see whether something became slow."""
        if self._service is None or time.monotonic() - self._last_look < _LOOK_S:
            return
        self._last_look = time.monotonic()
        try:
            self._look()
        except Exception as error:
            self._trouble(f"{type(error).__name__}: {error}")

    def _look(self) -> None:
        for path in self._runtime.glob(PATTERN):
            try:
                asked = msgspec.json.decode(path.read_bytes(), type=ProfileRequest)
                path.unlink()
            except (OSError, msgspec.MsgspecError):
                with contextlib.suppress(OSError):
                    path.unlink()
                continue
            self._place(asked, "the job asked for it")
        if self._slow_factor is None:
            return
        if (reason := self._slow()) and self._limiter.allow():
            self._place(ProfileRequest(detail=Detail(stacks=True)), reason)
        flagged = sorted(self._flagged())
        if flagged and self._limiter.allow():
            asked = ProfileRequest(Selection(ranks=flagged), detail=Detail(stacks=True))
            self._place(asked, "its straggler detector called ranks slow")

    def overlook(self) -> None:
        """Keep traces that ranks write from counting as movement of the job."""
        now = time.monotonic()
        for rank in self._ranks():
            if now - self._traced.get(rank.pid, -_AFTERWARDS_S) < _AFTERWARDS_S:
                rank.overlook_io()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._service is not None:
            self._service.close()
        if self._note is not None:
            agent_notes.remove(self._note)
        shutil.rmtree(self._traces, ignore_errors=True)

    def _place(self, asked: ProfileRequest, reason: str) -> None:
        service = self._service
        if service is None:
            return

        def place() -> None:
            try:
                service.requests.place(asked)
            except Exception as error:
                self._trouble(f"a trace was wanted because {reason}; {error}")

        # It looks at the processes first, which takes a moment that the watch cannot spare.
        self._pool.submit(place)

    def _trouble(self, text: str) -> None:
        if text not in self._troubles and len(self._troubles) < _MOST_TROUBLES:
            self._troubles.add(text)
            self._miss("traces", text)

    def _flagged(self) -> set[int]:
        """Ranks that the job's own straggler detector has just called slow."""
        ranks: set[int] = set()
        for rank in self._ranks():
            ranks |= self._flags.look(rank.folder / files.STRAGGLER.name)
        return ranks

    def _slow(self) -> str:
        now = time.time_ns()
        since, self._looked_ns = self._looked_ns, now
        for rank in self._ranks():
            try:
                progress = read_progress((rank.folder / files.PROGRESS.name).read_bytes())
            except (OSError, NotProgress):
                continue
            slow = slow_stretch(progress, self._slow_factor or 0.0, since, now)
            if slow is not None:
                return f"on rank {rank.rank} {slow}"
        return ""

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
