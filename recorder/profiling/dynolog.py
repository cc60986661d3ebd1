"""Dynolog's own request to profile, as its command line ``dyno`` sends it.

Its sender names a file, which must lie below the output root, and gets no
receipts: only whom the request met (dynolog/src/rpc/SimpleJsonServerInl.h).
"""

from __future__ import annotations

import time
from typing import Any

from hanglab.recorder.profiling.access_control import Refused
from hanglab.recorder.profiling.configuration import (
    BadConfiguration,
    check_text,
    number_of,
    values_of,
)
from hanglab.recorder.profiling.registry import Client

#: The name of the request, spelled as Dynolog spells it.
NAME = "setKinetOnDemandRequest"


def answer(matched: list[int], triggered: list[int], busy: int, **more: object) -> dict[str, Any]:
    """Dynolog's answer.  ``dyno`` wants ``processesMatched`` of every one, errors too."""
    return {
        "processesMatched": matched,
        "activityProfilersTriggered": triggered,
        "eventProfilersTriggered": [],
        "activityProfilersBusy": busy,
        "eventProfilersBusy": 0,
        **more,
    }


class DynologRequest:
    """One such request, checked."""

    def __init__(self, message: dict[str, Any]) -> None:
        """Raises Refused for what would be lost in Kineto, or do harm there."""
        text = message.get("config")
        job_id = message.get("job_id", 0)
        pids = message.get("pids", [])
        limit = message.get("process_limit", 1000)
        if (
            not isinstance(text, str)
            or not isinstance(job_id, int)
            or not isinstance(limit, int)
            or not isinstance(pids, list)
            or not all(isinstance(pid, int) for pid in pids)
        ):
            raise Refused("config must be text, job_id and process_limit numbers, pids numbers")
        try:
            check_text(text)
        except BadConfiguration as error:
            raise Refused(str(error)) from None
        self._values = values_of(text)
        self._job_id = job_id
        # Older clients say [0] for all.
        self._pids = {pid for pid in pids if pid != 0}
        self.limit = limit

    @property
    def file(self) -> str:
        return self._values.get("ACTIVITIES_LOG_FILE", "")

    @property
    def by_iterations(self) -> bool:
        return number_of(self._values, "ACTIVITIES_ITERATIONS") > 0

    @property
    def start_ms(self) -> int:
        """The start that was asked for, 0 for as soon as possible."""
        return 0 if self.by_iterations else number_of(self._values, "PROFILE_START_TIME")

    @property
    def warmup_s(self) -> int:
        # Kineto's own default where nothing is said.
        return number_of(self._values, "ACTIVITIES_WARMUP_PERIOD_SECS", 5)

    def means(self, client: Client) -> bool:
        """Dynolog matches the job's number and any of a process's ancestors."""
        return client.job_id == self._job_id and (
            not self._pids or bool(self._pids & set(client.pids))
        )

    def text(self, file: str) -> str:
        """The configuration, for a process that shall write to ``file``."""
        lines = {**self._values, "ACTIVITIES_LOG_FILE": file}
        return "".join(f"{key}={value}\n" for key, value in lines.items())


def check_start(request: DynologRequest, earliest_ms: float) -> None:
    """Raises Refused where Kineto would refuse the start, on the job's stderr only."""
    if request.start_ms and request.start_ms < earliest_ms:
        raise Refused(
            "the start is too close: these processes can begin in "
            f"{earliest_ms / 1e3 - time.time():.1f} s at the earliest"
        )


def told_apart(file: str, client: Client) -> str:
    """A name of its own for a process: in containers every first process has id 1."""
    rank = client.identity.rank
    own = f"_rank{rank}" if rank is not None else f"_{client.identity.pid}"
    for ending in (".pt.trace.json", ".json"):
        if ending in file:
            head, _, tail = file.partition(ending)
            return f"{head}{own}{ending}{tail}"
    return file + own
