"""Notes that running agents leave for their own user: where they listen, and the token.

One file per agent in a folder that only the user can enter, so that commands on
the same host find agents without being told a port.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hanglab.recorder.case.folders import write_whole
from hanglab.recorder.profiling.access_control import is_loopback
from hanglab.recorder.system import procfs

#: How an agent that listens everywhere is reached from its own host.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Note(msgspec.Struct):
    """One agent.  ``started`` tells its process from a later one with its id."""

    pid: int
    started: int
    port: int
    #: Where it can be reached from its own host.
    address: str = "127.0.0.1"
    token: str | None = None
    #: Certificate to trust, where it speaks TLS.
    authority: str | None = None
    #: The Case that it records into, if any.
    case: str | None = None
    socket_folder: str | None = None


def folder() -> Path:
    """The user's folder of notes.  Raises OSError if somebody else holds it."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = (
        Path(base) / "hanglab"
        if base and os.path.isdir(base)
        else Path(tempfile.gettempdir()) / f"hanglab-{os.geteuid()}"
    )
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a folder of this user's alone")
    return path


def leave(note: Note) -> Path:
    """Write a note; its path, for :func:`remove` at the end.  Raises OSError."""
    read_all()  # removes those of agents that were killed
    for again in (True, True, False):
        try:
            path = folder() / f"agent-{note.pid}.json"
            write_whole(path, msgspec.json.encode(note))
            break
        except FileNotFoundError:
            # Another agent, which was the last one, has just removed the folder.
            if not again:
                raise
    return path


def remove(path: Path) -> None:
    """Take a note away, and the folder after the last one."""
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def own(port: int, addresses: Sequence[str], **more: str | None) -> Note:
    """A note about this process, which listens on these addresses."""
    pid = os.getpid()
    found = procfs.stat(pid)
    local = [_ANY.get(address, address) for address in addresses]
    address = next((one for one in local if is_loopback(one)), local[0])
    return Note(pid, found.started if found is not None else 0, port, address, **more)


def read_all() -> list[Note]:
    """Notes of agents that are alive; those of dead ones are removed."""
    notes = []
    try:
        paths = sorted(folder().glob("agent-*.json"))
    except OSError:
        return []
    for path in paths:
        try:
            note = msgspec.json.decode(path.read_bytes(), type=Note)
        except (OSError, msgspec.MsgspecError):
            continue
        found = procfs.stat(note.pid)
        if found is None or found.started != note.started or found.state in "ZX":
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        notes.append(note)
    return notes
