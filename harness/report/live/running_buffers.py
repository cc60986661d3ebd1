"""Flight Recorder buffers of running ranks whose operations a device carries out.

What the host of such a rank has called tells nothing of what its device waits for, so the
recorder's own thread in the rank is asked for its buffer.  On a backend whose hosts carry
operations out themselves the progress files say all, and nobody is asked.
"""

from __future__ import annotations

import base64
import binascii
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hanglab.harness.report.live.ranks_at_work import JobAtWork, runtime_of
from hanglab.recorder.agent.rank_request import NoReply, ask
from hanglab.recorder.agent.samples import socket_of
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.backends import backends_in
from hanglab.recorder.case.reader import RankCase

#: Seconds within which a rank's thread must answer: 22 ms is what a full buffer takes, and
#: the thread may have to wait for the interpreter's lock.
_DEADLINE_S = 1.0
#: Of the time, the part that ranks may spend on answers, and the seconds until the next at least
#: and at most.
_SHARE = 0.01
_PAUSE_S = (2.0, 20.0)
#: Ranks that are asked at a time.
_AT_A_TIME = 8

ELSEWHERE = "it runs on another host"
NO_ANSWER = "its recorder does not answer"


class RunningBuffers:
    """Buffers that were asked for last, by rank, and the reasons for those that are not there."""

    def __init__(self, case: Path) -> None:
        self._case = case
        self._next = 0.0
        self._runtime: Path | None = None
        self.taken: dict[int, bytes] = {}
        self.absent: dict[int, str] = {}

    @property
    def asked(self) -> bool:
        """True where some rank's buffer is wanted."""
        return bool(self.taken or self.absent)

    def are_due(self) -> bool:
        """False while asking once more would take too much of the job's time."""
        return time.monotonic() >= self._next

    def ask(self, job: JobAtWork) -> None:
        """Asks all running ranks that have an operation on a device; waits for their answers."""
        alive = {one.rank: one for one in job.alive}
        ranks = [one for one in job.reader.ranks if one.rank in alive and _has_device(one)]
        here = [one for one in ranks if alive[one.rank].here]
        self.absent = {one.rank: ELSEWHERE for one in ranks if not alive[one.rank].here}
        self.taken = {}
        if not here:
            return
        if self._runtime is None:
            self._runtime = runtime_of(self._case)
        begun = time.monotonic()
        with ThreadPoolExecutor(_AT_A_TIME, "hanglab-live") as pool:
            answers = list(pool.map(self._ask_one, here))
        for rank, answer in zip(here, answers, strict=True):
            if answer is None:
                self.absent[rank.rank] = NO_ANSWER
            else:
                self.taken[rank.rank] = answer
        ended = time.monotonic()
        shortest, longest = _PAUSE_S
        self._next = ended + min(longest, max(shortest, (ended - begun) / _SHARE))

    def _ask_one(self, rank: RankCase) -> bytes | None:
        if self._runtime is None:
            return None
        try:
            (answer,) = ask(socket_of(rank, self._runtime), "buffer", [_DEADLINE_S])
            return base64.b64decode(answer["buffer"], validate=True)
        except (NoReply, KeyError, TypeError, binascii.Error):
            return None


def _has_device(rank: RankCase) -> bool:
    groups = rank.read(files.GROUPS)
    return any(not one.blocking for group in groups for one in backends_in(group.backend))
