"""Giving a rank that did not register itself its folder in the Case."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from hanglab.recorder.attach.tree import FoundRank
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import user_code
from hanglab.recorder.case.records import Clock, Python, RankProcess
from hanglab.recorder.case.writer import clock, write
from hanglab.recorder.rank import process
from hanglab.recorder.system import procfs

_TORCH = re.compile(r"(?P<site>.*)/torch/lib/lib(torch|c10)[^/]*\.so")
_VERSION = re.compile(r"python(\d+\.\d+)")


def register(case: Path, host: str, found: FoundRank) -> tuple[Path, RankProcess]:
    """Describe the process from outside, in a folder of its own.  Raises OSError."""
    folder, attempt = process.claim_folder(case, host, found.rank, found.attempt, found.pid)
    record = describe(found, attempt)
    if not (folder / files.PROCESS.name).exists():
        write(folder, files.PROCESS, record)
    return folder, record


def describe(found: FoundRank, attempt: int) -> RankProcess:
    """Description of a rank by /proc, as it would have described itself."""
    return RankProcess(
        pid=found.pid,
        rank=found.rank,
        world_size=found.world_size,
        started=_started(found.pid),
        python=python_of(found.pid),
        local_rank=found.local_rank,
        attempt=attempt,
        argv=process.shown(procfs.command_line(found.pid)),
        environment=process.environment(procfs.environment(found.pid)),
    )


def python_of(pid: int) -> Python:
    """Folders of the process's interpreter and packages, by the files that it has mapped."""
    files = procfs.mapped_files(pid)
    sites = {match["site"] for path in files if (match := _TORCH.fullmatch(path))}
    places = {_up_to(path, "site-packages") or _up_to(path, "dist-packages") for path in files}
    sites |= {place for place in places if place}
    version, stdlib = "", set()
    executable = procfs.executable(pid)
    for path in (*files, executable):
        match = _VERSION.search(path)
        if match and (at := path.find(f"/lib/python{match[1]}/")) >= 0:
            version = match[1]
            stdlib.add(path[: at + len(f"/lib/python{version}")])
    if not version and (match := _VERSION.search(os.path.basename(executable))):
        version = match[1]
    if version:
        prefix = os.path.dirname(os.path.dirname(executable))
        stdlib.add(os.path.join(prefix, "lib", f"python{version}"))
    torch = next((os.path.join(site, "torch") for site in sorted(sites) if _has_torch(site)), None)
    return Python(
        version=version,
        stdlib=sorted(path for path in stdlib if os.path.isdir(path)),
        site=sorted(sites),
        own=user_code.own_folders(),
        torch=torch,
        torch_version=_torch_version(torch),
    )


def _up_to(path: str, folder: str) -> str:
    at = path.find(f"/{folder}/")
    return path[: at + len(folder) + 1] if at >= 0 else ""


def _has_torch(site: str) -> bool:
    return os.path.isfile(os.path.join(site, "torch", "version.py"))


def _torch_version(torch: str | None) -> str | None:
    if torch is None:
        return None
    try:
        text = Path(torch, "version.py").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"__version__ = ['\"]([^'\"]+)", text)
    return match[1] if match else None


def _started(pid: int) -> Clock:
    now = clock()
    age = process_age(pid)
    ago = int((age or 0.0) * 1e9)
    return Clock(now.wall_ns - ago, now.mono_ns - ago)


def process_age(pid: int) -> float | None:
    """Seconds since the process was started; None if there is none."""
    stat = procfs.stat(pid)
    if stat is None:
        return None
    ticks = stat.started / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)
