"""Control groups of ranks: processor, memory and task limits, and how often they were met.

Both versions, also side by side as on many hosts: the controllers that are
mounted by version 1 are read there, the rest from the unified hierarchy.  A
limit may be set on any ancestor, so every level up to the mount that has one
is read.  Formats: the kernel's admin-guide/cgroup-v1 and cgroup-v2.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from hanglab.recorder.case.host_records import CpuGroup, MemoryGroup, PidsGroup
from hanglab.recorder.system.kernel_files import number, numbers, read
from hanglab.recorder.system.mount_table import Mount, read_mounts

_LIMITING = ("cpu", "memory", "pids")
_CONTROLLERS = (*_LIMITING, "freezer")
#: Bytes that no host has: version 1 gives a number of pages where there is no limit, and Docker
#: sets one that nobody reaches where it takes a limit back.
_NO_LIMIT = 1 << 50


class CgroupLevel(NamedTuple):
    """One control group: its folder, and the path by which the host knows it."""

    folder: str
    path: str
    version: int


def mounts(mountinfo: str) -> dict[str, Mount]:
    """Mount of each controller, by /proc/self/mountinfo; ``""`` is the unified hierarchy."""
    found: dict[str, Mount] = {}
    for mount in read_mounts(mountinfo):
        if mount.filesystem == "cgroup2":
            found.setdefault("", mount)
        elif mount.filesystem == "cgroup":
            for option in mount.options:
                if option in _CONTROLLERS:
                    found.setdefault(option, mount)
    return found


def levels_of(membership: str, mounted: Mapping[str, Mount]) -> dict[str, list[CgroupLevel]]:
    """The process's group and its ancestors by /proc/PID/cgroup, per controller that limits.

    Groups that cannot be seen from here are left out.
    """
    found = {}
    places = _places(membership, mounted)
    for controller in _LIMITING:
        if controller not in places:
            continue
        path, mount = places[controller]
        levels = _upwards(_below(path, mount) or "/", mount)
        found[controller] = [level for level in levels if os.path.isdir(level.folder)]
    return found


def group_of(controller: str, pid: int) -> CgroupLevel:
    """A process's own group.  Raises OSError if it has none, or none that is seen from here."""
    mounted = mounts(read("/proc/self/mountinfo") or "")
    place = _places(read(f"/proc/{pid}/cgroup") or "", mounted).get(controller)
    relative = place and _below(*place)
    if place and relative:
        own = _upwards(relative, place[1])[0]
        if os.path.isdir(own.folder):
            return own
    raise OSError(f"no {controller} control group of process {pid} is seen from here")


def freezer_state(level: CgroupLevel) -> str:
    """``frozen``, ``freezing`` or ``thawed``, by itself or with a group above it."""
    if level.version == 1:
        return (read(f"{level.folder}/freezer.state") or "").strip().lower()
    frozen = numbers(f"{level.folder}/cgroup.events").get("frozen")
    return "frozen" if frozen else "thawed"


def is_frozen(pid: int) -> bool:
    """True if a freezer holds the process, as far as its group is seen from here."""
    try:
        return freezer_state(group_of("freezer", pid)) == "frozen"
    except OSError:
        return False


def _places(membership: str, mounted: Mapping[str, Mount]) -> dict[str, tuple[str, Mount]]:
    """Per controller the path of a process's group, and the mount of its hierarchy."""
    paths: dict[str, str] = {}
    for line in membership.splitlines():
        number_, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(","):
            if name or number_ == "0":
                paths[name] = path
    found = {}
    for controller in _CONTROLLERS:
        key = controller if controller in mounted and controller in paths else ""
        if key in mounted and key in paths:
            found[controller] = paths[key], mounted[key]
    return found


def _below(path: str, mount: Mount) -> str | None:
    """Path from the root of a mount on; None if the group lies outside of it.

    In a container the mount shows its part only, while paths are the host's.
    """
    if ".." in path.split("/") or not f"{path}/".startswith(mount.root.rstrip("/") + "/"):
        return None
    return path.removeprefix(mount.root.rstrip("/")) or "/"


def _upwards(path: str, mount: Mount) -> list[CgroupLevel]:
    """Groups from one up to the root of the mount."""
    parts = [part for part in path.split("/") if part]
    version = 2 if mount.filesystem == "cgroup2" else 1
    return [
        CgroupLevel(os.path.join(mount.point, *parts[:end]), "/" + "/".join(parts[:end]), version)
        for end in range(len(parts), -1, -1)
    ]


def cpu_group(level: CgroupLevel, ranks: list[int]) -> CpuGroup | None:
    """None where the level sets no limit and counts nothing."""
    stat = numbers(f"{level.folder}/cpu.stat")
    if level.version == 1:
        quota = (read(f"{level.folder}/cpu.cfs_quota_us") or "").strip()
        period = number(f"{level.folder}/cpu.cfs_period_us")
        limited = quota.isdecimal() and period
        cpus = int(quota) / period if limited and period else None
        throttled_s = stat.get("throttled_time", 0) / 1e9
    else:
        words = (read(f"{level.folder}/cpu.max") or "").split()
        limited = len(words) == 2 and words[0].isdecimal() and words[1].isdecimal()
        cpus = int(words[0]) / int(words[1]) if limited else None
        throttled_s = stat.get("throttled_usec", 0) / 1e6
    if cpus is None and not stat.get("nr_throttled"):
        return None
    return CpuGroup(
        path=level.path,
        version=level.version,
        ranks=ranks,
        quota_cpus=cpus,
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled_s=throttled_s,
    )


def memory_group(level: CgroupLevel, ranks: list[int], own: bool) -> MemoryGroup | None:
    """``own``: the process's own group, which is told of even without a limit."""
    folder = level.folder
    if level.version == 1:
        stat = numbers(f"{folder}/memory.stat")
        group = MemoryGroup(
            path=level.path,
            version=1,
            ranks=ranks,
            used_bytes=number(f"{folder}/memory.usage_in_bytes"),
            limit_bytes=_limit(f"{folder}/memory.limit_in_bytes"),
            refused=_refused_v1(folder),
            oom_kills=numbers(f"{folder}/memory.oom_control").get("oom_kill"),
            refaults=stat.get(
                "total_workingset_refault_file", stat.get("total_workingset_refault")
            ),
        )
    else:
        events = numbers(f"{folder}/memory.events")
        stat = numbers(f"{folder}/memory.stat")
        group = MemoryGroup(
            path=level.path,
            version=2,
            ranks=ranks,
            used_bytes=number(f"{folder}/memory.current"),
            limit_bytes=_limit(f"{folder}/memory.max"),
            high_bytes=number(f"{folder}/memory.high"),
            refused=events.get("max"),
            slowed=events.get("high"),
            oom_kills=events.get("oom_kill"),
            refaults=stat.get("workingset_refault_file", stat.get("workingset_refault")),
        )
    if group.used_bytes is None and group.oom_kills is None:
        return None
    limited = group.limit_bytes is not None or group.high_bytes is not None
    return group if own or limited or group.oom_kills else None


def _limit(path: str) -> int | None:
    limit = number(path)
    return None if limit is None or limit >= _NO_LIMIT else limit


def _refused_v1(folder: str) -> int | None:
    """Number of times that the limit was met.

    Without swap the limit of memory and swap together is as low as that of memory, is
    looked at first, and is the one that counts; kernels since 6.15 or so count neither then.
    """
    met = number(f"{folder}/memory.failcnt")
    both = number(f"{folder}/memory.memsw.failcnt")
    return met if both is None else (met or 0) + both


def pids_group(level: CgroupLevel, ranks: list[int]) -> PidsGroup | None:
    """None where the level sets no limit."""
    limit = number(f"{level.folder}/pids.max")
    if limit is None:
        return None
    return PidsGroup(
        path=level.path,
        version=level.version,
        ranks=ranks,
        count=number(f"{level.folder}/pids.current"),
        limit=limit,
        refused=refused_tasks(level),
    )


def refused_tasks(level: CgroupLevel) -> int | None:
    """Number of processes and threads that were refused so far, whatever the limit is now."""
    return numbers(f"{level.folder}/pids.events").get("max")


class RankControlGroups:
    """Control groups of this host's ranks; those of ranks that have gone are still read."""

    def __init__(self) -> None:
        self._mounted = mounts(read("/proc/self/mountinfo") or "")
        #: Per controller and folder: the level, and the ranks seen in it.
        self._known: dict[str, dict[str, tuple[CgroupLevel, set[int], bool]]] = {}
        self._memberships: dict[int, str] = {}

    def missing(self) -> dict[str, str]:
        """Controllers that cannot be read at all, with the reason."""
        reasons = {}
        for controller in _LIMITING:
            if controller in self._mounted:
                continue
            unified = self._mounted.get("")
            if unified is None:
                reasons[controller] = "no control group file system is mounted"
            elif controller not in (read(f"{unified.point}/cgroup.controllers") or "").split():
                reasons[controller] = (
                    "the controller is neither mounted nor part of the unified one"
                )
        return reasons

    def notice(self, rank: int, pid: int) -> None:
        """Look up where a rank's process is now."""
        membership = read(f"/proc/{pid}/cgroup")
        if membership is None or self._memberships.get(rank) == membership:
            return
        self._memberships[rank] = membership
        for controller, levels in levels_of(membership, self._mounted).items():
            known = self._known.setdefault(controller, {})
            for seen in known.values():
                seen[1].discard(rank)
            for place, level in enumerate(levels):
                _, ranks, own = known.get(level.folder, (level, set(), False))
                known[level.folder] = (level, ranks | {rank}, own or place == 0)

    def cpu(self) -> list[CpuGroup]:
        found = (cpu_group(level, sorted(ranks)) for level, ranks, _ in self._levels("cpu"))
        return [group for group in found if group is not None]

    def memory(self) -> list[MemoryGroup]:
        found = (
            memory_group(level, sorted(ranks), own) for level, ranks, own in self._levels("memory")
        )
        return [group for group in found if group is not None]

    def pids(self) -> list[PidsGroup]:
        found = (pids_group(level, sorted(ranks)) for level, ranks, _ in self._levels("pids"))
        return [group for group in found if group is not None]

    def folders(self) -> list[str]:
        """Folders of unified groups in which ranks are themselves: they have pressure files."""
        return sorted(
            level.folder
            for level, ranks, own in self._levels("cpu")
            if level.version == 2 and own and ranks and level.path != "/"
        )

    def _levels(self, controller: str) -> list[tuple[CgroupLevel, set[int], bool]]:
        return list(self._known.get(controller, {}).values())
