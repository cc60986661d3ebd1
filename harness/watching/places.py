"""Places in which a watch keeps what it has, unless it is told others."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """``/var/lib/hanglab`` for root, for others a folder of their own; systemd names another."""
    if named := os.environ.get("STATE_DIRECTORY"):
        return Path(named.partition(":")[0])
    if os.geteuid() == 0:
        return Path("/var/lib/hanglab")
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "hanglab"
