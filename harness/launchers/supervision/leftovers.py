"""Removal of what the processes of a job leave behind outside themselves."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hanglab.recorder.system import procfs

SHARED_MEMORY = Path("/dev/shm")

#: Names that torch, multiprocessing and NCCL give; nothing else is ever removed.
_OURS = re.compile(r"torch_\d+_|sem\.|psm_|pym-|nccl-|cuda\.shm\.")
_BY_PID = re.compile(r"torch_(\d+)_")


def shared_memory_of(pids: Iterable[int]) -> set[Path]:
    """Segments in /dev/shm that these processes have mapped or open at this moment."""
    prefix = f"{SHARED_MEMORY}/"
    found: set[Path] = set()
    for pid in pids:
        names: list[str] = []
        names += procfs.mapped_files(pid)
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                names.append(procfs.open_file(pid, int(descriptor)))
        found.update(Path(name) for name in names if name.startswith(prefix))
    return {path for path in found if _OURS.match(path.name)}


def remove_shared_memory(seen: Iterable[Path], pids: set[int]) -> None:
    """Removes segments that ended processes had: seen in use, or named after one of ``pids``.

    A segment that some other process still uses stays.
    """
    paths = set(seen)
    with suppress(OSError):
        for name in os.listdir(SHARED_MEMORY):
            match = _BY_PID.match(name)
            if match and int(match[1]) in pids:
                paths.add(SHARED_MEMORY / name)
    if not paths:
        return
    everyone = (int(name) for name in os.listdir("/proc") if name.isdigit())
    for path in paths - shared_memory_of(everyone):
        with suppress(OSError):
            path.unlink()


def remove_tree(folder: Path) -> None:
    """Removes a folder whatever the modes within; what cannot be removed stays."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    for path, _folders, _files in os.walk(folder):
        with suppress(OSError):
            os.chmod(path, stat.S_IRWXU)  # before the walk goes into it
    shutil.rmtree(folder, ignore_errors=True)
