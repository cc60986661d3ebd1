"""Folder of the locks."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def leases_folder() -> Path:
    """The folder of the locks.  It stays, so that all who come later meet at the same files."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hanglab" / "leases"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"hanglab-{os.getuid()}-leases"
    fallback.mkdir(mode=0o700, exist_ok=True)
    return fallback
