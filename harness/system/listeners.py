"""The process of a container that listens at a port."""

from __future__ import annotations

from hanglab.recorder.system import procfs

_LISTEN = "0A"


def listener_inode(pid: int, port: int) -> int | None:
    """Inode of the socket that listens at ``port`` in the network of a process.

    Raises OSError where the process has gone.
    """
    suffix = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[1].endswith(suffix) and words[3] == _LISTEN:
                    return int(words[9])
    return None


def processes_of(first: int) -> list[int]:
    """A container's first process and all below it, as the host counts them."""
    return [first, *procfs.descendants([first])[first]]
