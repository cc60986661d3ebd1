"""GPUs of a job: whose they are; what NVML, the driver's messages and NCCL's RAS say of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.error_texts import XID
from hanglab.analyzer.facts.host import HostView
from hanglab.recorder.case.host_records import GpuSample

#: Xid numbers of a device that is broken, or lost (docs.nvidia.com/deploy/xid-errors): stopped
#: processing, ECC, failed remapping, NVLink, bus, GSP, power.
_BROKEN = frozenset(
    {46, 48, 62, 64, 74, 79, 94, 95, 110, 119, 120, 121, 136, 140, 143, *range(144, 151), 155, 156}
)
#: Of a process whose channel was stopped, often by its own kernel: nothing that it launches runs
#: any more.  45 is what any end of a process brings about, 63 and 154 say what to do later.
_STOPPED = frozenset({8, 13, 31, 32, 43, 68, 69, 109})
#: ncclResult_t
_UNHANDLED_CUDA = 1


@dataclass(frozen=True)
class GpuHistory:
    """One GPU of a host, oldest sample first."""

    host: str
    samples: tuple[GpuSample, ...]

    @property
    def last(self) -> GpuSample:
        return self.samples[-1]

    @property
    def ranks(self) -> list[int]:
        """Ranks that last had it in use."""
        return next((sample.ranks for sample in reversed(self.samples) if sample.ranks), [])

    @property
    def ecc_errors(self) -> int:
        """Uncorrected errors since it was first looked at."""
        counts = [s.ecc_errors for s in self.samples if s.ecc_errors is not None]
        return max(0, counts[-1] - counts[0]) if counts else 0


@dataclass(frozen=True)
class XidEvent:
    """A message of the driver.  ``ranks`` are those whose GPU or process it names, [] if unknown.

    ``at_ns`` is when somebody read it, on the job's clock.
    """

    number: int
    host: str
    line: str
    ranks: tuple[int, ...]
    at_ns: int

    @property
    def broken(self) -> bool:
        """True for a fault of the device, False for one of what a process ran on it."""
        return self.number in _BROKEN


def gpus_of(host: HostView) -> list[GpuHistory]:
    found: dict[str, list[GpuSample]] = {}
    for sample in host.samples:
        for gpu in sample.gpus:
            found.setdefault(gpu.uuid or str(gpu.index), []).append(gpu)
    return [GpuHistory(host.name, tuple(samples)) for samples in found.values()]


def xid_events(facts: CaseFacts) -> list[XidEvent]:
    """Messages on a device that is broken or a channel that was stopped, the earliest first."""
    found = []
    for name, host in facts.hosts.items():
        views = [view for view in facts.ranks.values() if view.host == name]
        ahead_ns = views[0].clock_ahead_ns if views else 0
        by_pid = {str(view.pid): view.rank for view in views}
        for sample in host.samples:
            for line in sample.kernel:
                match = XID.pattern.search(line)
                number = int(match["number"]) if match is not None else 0
                if match is None or number not in _BROKEN | _STOPPED:
                    continue
                ranks = [by_pid[match["pid"]]] if match["pid"] in by_pid else []
                ranks = ranks or _ranks_at(host, match["pci"])
                if not ranks and len(views) == 1:
                    ranks = [views[0].rank]
                at_ns = sample.at.wall_ns - ahead_ns
                known = tuple(rank for rank in ranks if rank in facts.ranks)
                found.append(XidEvent(number, name, line, known, at_ns))
    return sorted(found, key=lambda event: event.at_ns)


def _ranks_at(host: HostView, pci: str) -> list[int]:
    """Ranks on the GPU at an address of the bus."""
    for gpu in gpus_of(host):
        if gpu.last.pci and _bus_place(gpu.last.pci) == _bus_place(pci):
            return gpu.ranks
    return []


def _bus_place(pci: str) -> tuple[int, ...]:
    """Domain, bus and device; NVML and the driver write the domain at different lengths."""
    parts = pci.partition(".")[0].split(":")
    try:
        return tuple(int(part, 16) for part in parts)
    except ValueError:
        return ()


def ras_cuda_errors(facts: CaseFacts) -> Iterator[tuple[int, str]]:
    """(rank, host) of processes whose communicator met a CUDA error, as NCCL's RAS service says."""
    by_pid: dict[int, list[tuple[int, str]]] = {}
    for view in facts.ranks.values():
        by_pid.setdefault(view.pid or 0, []).append((view.rank, view.host))
    told = set()
    for host in facts.hosts.values():
        for member in _members(host.nccl):
            status = member.get("status")
            if not isinstance(status, dict) or status.get("async_error") != _UNHANDLED_CUDA:
                continue
            known = by_pid.get(member.get("pid") or 0, [])
            if len(known) == 1:  # process ids of different hosts may be the same
                told.add(known[0])
    yield from sorted(told)


def _members(document: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Ranks of all communicators in RAS's JSON (NVIDIA/nccl, src/ras/client_support.cc)."""
    groups = document.get("communicators") if document is not None else None
    for group in groups if isinstance(groups, list) else []:
        ranks = group.get("ranks") if isinstance(group, dict) else None
        for member in ranks if isinstance(ranks, list) else []:
            if isinstance(member, dict):
                yield member
