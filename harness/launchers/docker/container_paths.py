"""Where things are inside a node's container, and what runs there."""

from __future__ import annotations

import os
from typing import Final

CASE: Final = "/case"
LOG: Final = "/log"
#: Shared with hanglab: its socket, and the nodes' orders.
SHARED: Final = "/run/hanglab"
LINK: Final = f"{SHARED}/link"
#: TMPDIR of the ranks, and the recorder's runtime folder.
TEMPORARY: Final = "/tmp/hanglab"
DUMPS: Final = f"{LOG}/timeout_dump_rank"
PIPES: Final = f"{TEMPORARY}/dump_rank"
#: Holds the folder ``hanglab`` where the code of a checkout stands in for the image's.
SOURCE: Final = "/opt/hanglab-source"


def with_hook(path: str | None) -> str:
    """A PYTHONPATH whose first folder starts the recorder in every rank."""
    from hanglab.recorder import rank as recorder

    folder = str(recorder.hook_dir())
    return folder if not path else folder + os.pathsep + path


def everyone() -> set[int]:
    """Every process of this container that has not ended."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdecimal() and _parent_and_state(int(name))[1] not in ("", "Z", "X"):
            found.add(int(name))
    return found


def below(pid: int) -> set[int]:
    """The processes below one of them."""
    parents = {process: _parent_and_state(process)[0] for process in everyone()}
    found: set[int] = set()
    while True:
        new = {p for p, parent in parents.items() if parent == pid or parent in found} - found
        if not new:
            return found
        found |= new


def _parent_and_state(pid: int) -> tuple[int, str]:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0, ""
    return int(fields[1]), fields[0]
