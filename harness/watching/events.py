"""Events of a watch: what it keeps in its history, and tells."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from hanglab.recorder.system.host_name import host_name

Kind = Literal["stopped", "resumed", "failed", "storm", "not_captured"]


@dataclass(frozen=True)
class WatchEvent:
    """Something that people are told.  ``summary`` is one sentence."""

    kind: Kind
    job: str
    summary: str
    host: str = field(default_factory=host_name)
    at: float = field(default_factory=time.time)
    attempt: int = 0
    cause: str | None = None
    status: str | None = None
    #: Ranks that are the cause, and those of them that run on this host.
    culprits: list[int] = field(default_factory=list)
    culprits_here: list[int] = field(default_factory=list)
    case: str | None = None
    url: str | None = None
    #: Words by which a job is known again after a restart; the job's name without.
    same_job: str = ""
    #: Words by which the same failure is known again.
    signature: str = ""
    #: Seconds for which nothing had moved.
    rested_s: float | None = None
    #: Seconds that the capture and its analysis took after that.
    captured_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Keys of hanglab.watch/1, as docs/watch.md lists them."""
        return {
            "schema": "hanglab.watch/1",
            "event": self.kind,
            "at": round(self.at, 3),
            "host": self.host,
            "job": self.job,
            "attempt": self.attempt,
            "summary": self.summary,
            "status": self.status,
            "cause": self.cause,
            "culprits": self.culprits,
            "case": self.case,
            "url": self.url,
            "rested_s": None if self.rested_s is None else round(self.rested_s, 1),
            "captured_s": None if self.captured_s is None else round(self.captured_s, 1),
        }
