"""Names of a Case's files and folders, and writing them so that only their owner can read them.

Standard library only: the part that runs inside ranks uses this.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

MANIFEST: Final = "manifest.json"
JOB: Final = "job.json"
HOSTS: Final = "hosts"
HOST: Final = "host.json"
CONTAINER: Final = "container.json"
SAMPLES: Final = "samples.jsonl"
NCCL_RAS: Final = "nccl_ras.json"
RANKS: Final = "ranks"

PROCESS: Final = "process.json"
PROGRESS: Final = "progress.bin"
GROUPS: Final = "groups.json"
FLIGHT_RECORDER: Final = "flight_recorder.pickle"
FLIGHT_RECORDER_STACKS: Final = "flight_recorder_stacks.pickle"
EXCEPTIONS: Final = "exceptions.jsonl"
HANDLED: Final = "handled.jsonl"
DEPARTURES: Final = "departures.jsonl"
ELASTIC_ERROR: Final = "elastic_error.json"
WAITS: Final = "waits.json"
STACKS: Final = "stacks.jsonl"
NATIVE_STACKS: Final = "native_stacks.jsonl"
PROCESSES: Final = "processes.jsonl"
MOVEMENT: Final = "movement.json"
CHILDREN: Final = "children.jsonl"
EXIT: Final = "exit.json"
CODE: Final = "code.json"
LINES: Final = "lines.json"
STRAGGLER: Final = "straggler.jsonl"
STDERR: Final = "stderr.txt"
#: Folder of a rank's profiler traces.
TRACES: Final = "traces"
CONNECTIONS: Final = "connections.jsonl"

PROGRESS_CAPTURED: Final = "progress_captured.bin"
FLIGHT_RECORDER_CAPTURED: Final = "flight_recorder_captured.pickle"
FLIGHT_RECORDER_STACKS_CAPTURED: Final = "flight_recorder_stacks_captured.pickle"
WAITS_CAPTURED: Final = "waits_captured.json"
#: What a rank writes on or anew after the capture, and its state at the capture.
CAPTURED: Final = {
    PROGRESS: PROGRESS_CAPTURED,
    FLIGHT_RECORDER: FLIGHT_RECORDER_CAPTURED,
    FLIGHT_RECORDER_STACKS: FLIGHT_RECORDER_STACKS_CAPTURED,
    WAITS: WAITS_CAPTURED,
}

#: Bytes of a rank's stderr that are kept, from its end.
STDERR_BYTES: Final = 64 * 1024


def host_folder(case: Path | str, host: str) -> Path:
    """Folder of a host; characters that a folder name cannot bear become underscores."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", host).lstrip(".") or "host"
    return Path(case) / HOSTS / name[:200]


def rank_folder(case: Path | str, host: str, rank: int, attempt: int = 0) -> Path:
    return host_folder(case, host) / RANKS / f"{rank}.{attempt}"


def parse_rank_folder(name: str) -> tuple[int, int] | None:
    """(rank, attempt) of a rank folder's name; None if it is none."""
    match = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", name)
    return (int(match[1]), int(match[2])) if match else None


def make_private(folder: Path) -> Path:
    """Create a folder and its missing parents, each with mode 0700."""
    missing = []
    at = folder
    while not at.is_dir():
        missing.append(at)
        if at.parent == at:
            break
        at = at.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    return folder


def claim(case: Path) -> None:
    """Make an empty folder the Case of one recording.

    Of two that try at once one gets FileExistsError.  Raises OSError.
    """
    os.mkdir(case / HOSTS, 0o700)


def open_private(path: Path | str, flags: int) -> int:
    """os.open with mode 0600, whatever the umask adds to it; never through a link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def append_line(path: Path, data: bytes) -> None:
    """Add one line with a single write, so that lines of several threads do not mix."""
    fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, data + b"\n")
    finally:
        os.close(fd)
