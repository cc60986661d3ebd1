"""Samples of a host, and what they say of its ranks: limits met, disks full, time lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from hanglab.analyzer.facts.thresholds import (
    LATEST_SAMPLES,
    SCARCE_MEMORY_SAMPLES,
    SCARCE_MEMORY_SHARE,
)
from hanglab.recorder.case.file_kinds import EvidenceFile
from hanglab.recorder.case.host_records import (
    CpuGroup,
    FileSystem,
    HostSample,
    MemoryGroup,
    PidsGroup,
    RankLoad,
)
from hanglab.recorder.case.reader import HostCase
from hanglab.recorder.case.records import Container

Content = TypeVar("Content")
ControlGroup = TypeVar("ControlGroup", CpuGroup, MemoryGroup, PidsGroup)


@dataclass(frozen=True)
class Span(Generic[ControlGroup]):
    """A control group when first and when last seen.  Its counters only grow between the two.

    ``last.ranks`` are those that it last held, ``seconds`` how long it held any.
    """

    first: ControlGroup
    last: ControlGroup
    seconds: float
    every: tuple[ControlGroup, ...] = ()

    def grown(self, counter: Callable[[ControlGroup], int | float | None]) -> float:
        """Growth of a counter; 0 where it was not read."""
        before, after = counter(self.first), counter(self.last)
        return max(0.0, after - before) if before is not None and after is not None else 0.0


@dataclass
class HostView:
    """One host.  ``samples`` are oldest first; empty where nothing was sampled."""

    name: str = ""
    samples: list[HostSample] = field(default_factory=list)
    #: What NCCL's RAS service answered.
    nccl: dict[str, Any] | None = None
    #: What the container engine said of it at the capture, where it is a container.
    container: Container | None = None
    #: The host in its Case; None for a bare folder of dumps.
    case: HostCase | None = None

    def read(self, file: EvidenceFile[Content]) -> Content:
        """A file of the host's that nothing here stands for; empty without a Case."""
        return file.empty if self.case is None else self.case.read(file)

    @property
    def latest(self) -> HostSample | None:
        """The sample of the capture, else the last one."""
        captured = [s for s in self.samples if s.capture]
        return (captured or self.samples)[-1] if self.samples else None

    @cached_property
    def cpu(self) -> list[Span[CpuGroup]]:
        return _spans(self.samples, lambda sample: sample.cpu_groups)

    @cached_property
    def memory(self) -> list[Span[MemoryGroup]]:
        return _spans(self.samples, lambda sample: sample.memory_groups)

    @cached_property
    def pids(self) -> list[Span[PidsGroup]]:
        return _spans(self.samples, lambda sample: sample.pids_groups)

    @property
    def oom_kills(self) -> int:
        """Processes of the host killed for want of memory while it was sampled."""
        counts = [s.oom_kills for s in self.samples if s.oom_kills is not None]
        return counts[-1] - counts[0] if counts else 0

    @property
    def memory_is_scarce(self) -> bool:
        """True where hardly any of the host's memory was left in one of the latest samples."""
        return any(
            s.memory_available_bytes is not None
            and s.memory_bytes
            and s.memory_available_bytes < SCARCE_MEMORY_SHARE * s.memory_bytes
            for s in self.samples[-SCARCE_MEMORY_SAMPLES:]
        )

    @cached_property
    def kernel(self) -> list[str]:
        return [line for sample in self.samples for line in sample.kernel]

    def loads(self, rank: int) -> list[RankLoad]:
        """Samples of the rank's process, oldest first."""
        return [load for s in self.samples for load in s.ranks if load.rank == rank]

    def spaces(self, rank: int) -> list[FileSystem]:
        """File systems that the rank writes to, each with the least room of its latest samples.

        What a process had filled is often gone soon after it: three samples count.
        """
        latest: dict[tuple[str, str], FileSystem] = {}
        for sample in self.samples[-LATEST_SAMPLES:]:
            for space in sample.spaces:
                if rank not in space.ranks:
                    continue
                key = (space.path, space.filesystem)
                known = latest.get(key)
                if known is None or _room(space) <= _room(known):
                    latest[key] = space
        return list(latest.values())

    def stalled_share(self, resource: str, full: bool) -> float:
        """Share of the sampled time in which some (or all) of the host's tasks waited for it."""
        found = [
            (s.at.mono_ns, p.full_s if full else p.some_s)
            for s in self.samples
            for p in s.pressure
            if p.resource == resource and not p.group
        ]
        found = [(at, total) for at, total in found if total is not None]
        if len(found) < 2 or found[-1][0] <= found[0][0]:
            return 0.0
        grown = (found[-1][1] or 0.0) - (found[0][1] or 0.0)
        return grown / ((found[-1][0] - found[0][0]) / 1e9)


def _room(space: FileSystem) -> tuple[int, int]:
    none = 1 << 62
    return (
        none if space.free_bytes is None else space.free_bytes,
        none if space.free_inodes is None else space.free_inodes,
    )


def _spans(
    samples: Iterable[HostSample], groups: Callable[[HostSample], list[ControlGroup]]
) -> list[Span[ControlGroup]]:
    """One for each path."""
    seen: dict[str, list[tuple[int, ControlGroup]]] = {}
    for sample in samples:
        for group in groups(sample):
            seen.setdefault(group.path, []).append((sample.at.mono_ns, group))
    spans = []
    for found in seen.values():
        held = [(at, group) for at, group in found if group.ranks]
        if held:
            last = _with_ranks(found[-1][1], held[-1][1].ranks)
            seconds = (held[-1][0] - found[0][0]) / 1e9
            spans.append(Span(found[0][1], last, seconds, tuple(group for _, group in found)))
    return spans


def _with_ranks(group: ControlGroup, ranks: list[int]) -> ControlGroup:
    fields = {name: getattr(group, name) for name in group.__struct_fields__}
    return type(group)(**{**fields, "ranks": ranks})
