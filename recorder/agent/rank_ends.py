"""Ends of this host's ranks, and which of them failed first."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from hanglab.recorder.agent.capture import ended, failing, told
from hanglab.recorder.agent.exits import ExitWatch
from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.folders import parse_rank_folder
from hanglab.recorder.case.records import Clock, Exit, Raised
from hanglab.recorder.case.writer import clock, write

#: For a rank that vanished, the launcher may still tell how.
_WAIT_S = 0.5

UNTOLD = "nobody told how it ended"
#: What gloo, NCCL and the store say where a time limit of theirs strikes.
_TIMEOUT = re.compile(r"[Tt]imed out|[Tt]imeout|failed to pass monitoredBarrier")


class RankEnds:
    """Writes each rank's exit.json.  ``miss(what, reason, rank)`` notes what is absent."""

    def __init__(self, runtime: Path, miss: Callable[[str, str, int | None], None]) -> None:
        self.watch = ExitWatch(runtime)
        self._miss = miss
        #: Whoever ends from now on is ended by hanglab.
        self.ending = False
        #: When a rank was first seen to have failed (monotonic), and how.
        self.failure: tuple[float, str] | None = None
        #: The attempt that runs: what ended of earlier ones was started anew.
        self._attempt = 0
        #: That a rank was seen to have lost its patience with a peer, while it had not yet ended.
        self.gave_up: str | None = None
        self._vanished: dict[Path, tuple[float, Clock]] = {}

    def started_anew(self, ranks: list[WatchedRank]) -> bool:
        """True once where ranks of a later attempt are there, and none of earlier ones any more.

        A second process of a rank beside the first one is no new attempt.
        """
        latest = max((rank.attempt for rank in ranks), default=0)
        if latest <= self._attempt or any(r.attempt < latest and not r.gone for r in ranks):
            return False
        self._attempt = latest
        self.failure = self.gave_up = None
        return True

    def look_for_timeouts(self, ranks: list[WatchedRank]) -> None:
        """Ranks whose main thread was ended by a time limit of torch's, and whose process was not.

        Once they are, the launcher ends the one that they have waited for.
        """
        for rank in ranks:
            if self.gave_up is not None:
                return
            try:
                lines = (rank.folder / files.EXCEPTIONS.name).read_bytes().splitlines()
            except OSError:
                continue
            if any(map(_is_timeout, lines)):
                self.gave_up = f"a time limit struck on rank {rank.rank}"

    def notice(self, ranks: list[WatchedRank], *, last: bool = False) -> None:
        """Ranks that have ended without anybody having said how.  ``last``: nobody will."""
        now = time.monotonic()
        for rank in ranks:
            status = rank.seen_status
            if rank.exit is not None and status is not None and untold(rank.exit):
                end = ended(status, rank.exit.by_recorder)
                self.note(rank, msgspec.structs.replace(end, at=rank.exit.at))
            if not rank.gone or rank.exit is not None:
                continue
            since, at = self._vanished.setdefault(rank.folder, (now, clock()))
            if status is not None:
                self.note(rank, ended(status, self.ending))
            elif now - since < _WAIT_S and not last:
                continue
            elif self.ending:
                self.note(rank, Exit(clock(), None, int(signal.SIGKILL), True))
            else:
                early = rank.left_early()
                self.note(rank, Exit(at, vanished=early is True), unexpected=early is not False)

    def note(self, rank: WatchedRank, end: Exit, unexpected: bool = False) -> None:
        """The rank has ended so; ``unexpected`` as far as anybody knows."""
        rank.exit = end
        if untold(end):
            self._miss(files.EXIT.name, UNTOLD, rank.rank)
        self.write(rank.folder, rank.rank, end, unexpected)

    def write(self, folder: Path, rank: int, end: Exit, unexpected: bool = False) -> None:
        """Notes the end of a rank that has no more than a folder."""
        # Whoever started it may have told meanwhile, and knows better.
        if (end.vanished and not (folder / files.EXIT.name).exists()) or not untold(end):
            try:
                write(folder, files.EXIT, end)
            except OSError as error:
                self._miss(files.EXIT.name, f"could not be written: {error}", rank)
        number = parse_rank_folder(folder.name)
        past = number is not None and number[1] < self._attempt
        if (unexpected or failing(end)) and not past:
            self.failed(f"rank {rank} {told(end)}")

    def failed(self, detail: str) -> None:
        """A rank has failed, maybe on another host; the first that did counts."""
        if self.failure is None:
            self.failure = time.monotonic(), detail


def _is_timeout(line: bytes) -> bool:
    """True for a line of ``exceptions.jsonl`` of the main thread that tells of a limit of torch's.

    Others have time limits, too: it is torch's if the line within which it struck is.
    """
    try:
        raised = msgspec.json.decode(line, type=Raised)
    except msgspec.MsgspecError:
        return False  # It is being written, perhaps.
    # Between torch and its backend is the boundary.
    of_torch = any("/torch/" in frame.file for frame in raised.frames[:2])
    return raised.main and of_torch and _TIMEOUT.search(raised.message) is not None


def untold(end: Exit) -> bool:
    """True where neither a code nor a signal is known."""
    return end.code is None and end.signal is None
