"""Old Cases of a watch, removed where it is asked to: a service would fill any disk in time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from hanglab.harness.recording.case_folder import NAME_PREFIX
from hanglab.recorder.case.folders import HOSTS

#: Seconds between two looks at what lies there, and in a day.
_EVERY_S = 3600.0
_DAY_S = 86400.0


class CaseRetention:
    """Removes Cases that nothing has been written into for so many days."""

    def __init__(
        self,
        folder: Path,
        days: float,
        say: Callable[[str], None],
        unsent: Callable[[], int] = lambda: 0,
    ) -> None:
        """``folder`` holds one host's Cases.  While some are ``unsent`` to a store all stay."""
        self._folder = folder
        self._days = days
        self._say = say
        self._unsent = unsent
        self._looked_s = float("-inf")

    def look(self) -> None:
        """Removes what is due, at most once in an hour."""
        if time.monotonic() - self._looked_s < _EVERY_S or self._unsent():
            return
        self._looked_s = time.monotonic()
        oldest = time.time() - self._days * _DAY_S
        cases = [case for case in self._folder.glob(f"{NAME_PREFIX}*") if _is_case(case)]
        for case in sorted(case for case in cases if _written(case) < oldest):
            shutil.rmtree(case, ignore_errors=True)
            gone = "is removed" if not case.exists() else "cannot be removed"
            self._say(f"{case}, older than {self._days:g} days, {gone}")


def _is_case(folder: Path) -> bool:
    return not folder.is_symlink() and (folder / HOSTS).is_dir()


def _written(case: Path) -> float:
    """Time of the clock at which the top of a Case was last written, in seconds."""
    try:
        return max(path.lstat().st_mtime for path in (case, *case.iterdir()))
    except OSError:
        return time.time()
