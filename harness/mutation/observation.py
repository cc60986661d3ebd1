"""Observation of a mutant's job by its ranks and the harness; the analyzer has no part in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from hanglab.harness.jobs.run_folder import JobFolder
from hanglab.harness.mutation.pace import cost_share

#: Errors of communication are what victims raise; of others the rank itself is the root.
_OF_COMMUNICATION = re.compile(
    r"gloo/|gloo::|nccl|connect|timed? ?out|socket|peer|store|broken pipe|reset", re.IGNORECASE
)
_DIST_ERRORS = frozenset(
    {"DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "DistQueueEmptyError"}
)


class End(str, Enum):
    """End of a job."""

    HANGS = "hangs"
    FAILS = "fails"
    WELL = "ends well"


@dataclass(frozen=True)
class RaisedException:
    """An exception that came to the top of a rank that the fault had struck."""

    rank: int
    kind: str
    line: int
    #: RaisedException for what the rank itself did, and not since a peer had gone.
    own: bool


@dataclass(frozen=True)
class JobObservation:
    """Facts of one job."""

    end: End
    #: Ranks on which the fault struck.
    struck: list[int]
    raised: list[RaisedException]
    #: The script's line at which each struck rank was seen last.
    standing: dict[int, int]
    #: Ranks whose process had ended by itself, and well: they stand on no line.
    gone: frozenset[int] = frozenset()
    #: True where the ranks printed what those of the original did.
    same_output: bool = False
    #: Share of its rank's time that a fault took which only costs time; None for others.
    cost_share: float | None = None
    #: The script's line that made each struck rank's first collective after the fault.
    calling: dict[int, int] = field(default_factory=dict)


def observe(job: JobFolder, truth: Path, script: Path, control: JobFolder | None) -> JobObservation:
    """Reads what the ranks of a mutant's job left in ``truth``, and how they ended."""
    struck: list[int] = []
    raised: list[RaisedException] = []
    standing: dict[int, int] = {}
    calling: dict[int, int] = {}
    for kept in truth.glob(f"{script.stem}.*.line"):
        at = int(kept.name.split(".")[-2])
        for found, seen in zip((standing, calling), last_lines(kept), strict=True):
            if seen:
                found[at] = seen
    for events in sorted(truth.glob(f"{script.stem}.*.jsonl")):
        rank = int(events.name.split(".")[-2])
        for line in events.read_text().splitlines():
            event: dict[str, Any] = msgspec.json.decode(line)
            kind = event.get("raised")
            if kind is None:
                struck.append(rank)
                continue
            foreign = kind in _DIST_ERRORS or (
                _OF_COMMUNICATION.search(str(event.get("text", ""))) is not None
                and kind in ("RuntimeError", "OSError", "ConnectionError", "TimeoutError")
            )
            raised.append(RaisedException(rank, kind, event["line"], own=not foreign))
    same = control is not None and _output(job) == _output(control)
    told = msgspec.json.decode(job.truth.read_bytes())
    gone = frozenset(one["rank"] for one in told["exits"] if one["code"] == 0)
    costs = [cost for kept in truth.glob(f"{script.stem}.*.cost") if (cost := cost_share(kept))]
    return JobObservation(
        end=_end(told),
        struck=sorted(set(struck)),
        raised=raised,
        standing=standing,
        calling=calling,
        gone=gone,
        same_output=same,
        cost_share=max(costs, default=None),
    )


def last_lines(kept: Path) -> tuple[int, int]:
    """The script's lines that a rank was last at and called first from, as it kept them; or 0."""
    try:
        content = kept.read_bytes()
    except OSError:
        return 0, 0
    return int.from_bytes(content[:4], "little"), int.from_bytes(content[4:8], "little")


def _end(told: dict[str, Any]) -> End:
    exits: list[dict[str, Any]] = told["exits"]
    if any(gone["code"] not in (0, None) or gone["signal"] for gone in exits):
        return End.FAILS
    return End.HANGS if len(exits) < told["world_size"] else End.WELL


def _output(job: JobFolder) -> list[str]:
    return [path.read_text(errors="replace") for path in sorted(job.log.glob("rank*.out"))]
