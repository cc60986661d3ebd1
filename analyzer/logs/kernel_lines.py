"""Lines of kernels on processes, and the process of each rank."""

from __future__ import annotations

import re

_OF_KERNEL = re.compile(
    r"NVRM: Xid \(|[Kk]illed process \d+|slurmstepd: error: Detected \d+ oom[-_]kill"
)
#: NCCL, of a communicator: host, process, thread and device stand before it.
_RANK_OF_PID = re.compile(
    r":(?P<pid>\d{1,9}):\d+ \[\d+\] NCCL INFO (?:\w+ )?comm \S+ rank (?P<rank>\d{1,9}) "
    r"nranks (?P<size>\d{1,9})\b"
)


def kernel_lines(text: str) -> list[str]:
    """Lines on devices that fail and on processes that a kernel killed, its own and Slurm's."""
    return [line.strip() for line in text.splitlines() if _OF_KERNEL.search(line)]


def pids_of_ranks(text: str) -> dict[int, int]:
    """The process of each rank, by what NCCL wrote of its largest communicator."""
    found: dict[int, dict[int, int]] = {}
    for match in _RANK_OF_PID.finditer(text):
        found.setdefault(int(match["size"]), {})[int(match["rank"])] = int(match["pid"])
    return found[max(found)] if found else {}
