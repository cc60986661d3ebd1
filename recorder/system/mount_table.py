"""Mounted file systems: the table of a process, and the space that one has left.

Imported inside ranks.  Format of the table: proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from hanglab.recorder.case.file_system_space import Space

#: Spaces, tabs, new lines and backslashes are written as octal numbers.
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of the table."""

    #: Major and minor number of its device.
    device: tuple[int, int]
    #: Part of its file system that it shows: ``/`` is all of it.
    root: str
    point: str
    read_only: bool
    filesystem: str
    #: Those of the file system itself; a hierarchy of control groups names its controllers.
    options: tuple[str, ...]


def read_mounts(mountinfo: str) -> list[Mount]:
    """The mounts of a /proc/PID/mountinfo, in its order: the latest last."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) < 6 or len(tail) < 2:
            continue
        major, _, minor = fields[2].partition(":")
        root, point = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), f) for f in fields[3:5])
        found.append(
            Mount(
                device=(int(major), int(minor)),
                root=root,
                point=point,
                read_only="ro" in fields[5].split(","),
                filesystem=tail[0],
                options=tuple(tail[-1].split(",")),
            )
        )
    return found


def space_of(path: str | os.PathLike[str]) -> Space:
    """Space of the file system that holds ``path``; a lost one may never answer.

    Raises OSError.
    """
    told = os.statvfs(path)
    size, free = told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize
    # Some, such as btrfs, have no fixed number of files.
    return Space(size, free, told.f_files or None, told.f_favail if told.f_files else None)
