"""Judges a job after its capture: it hangs still, moves again, or hangs after all."""

from __future__ import annotations

import time
from typing import Literal

from hanglab.recorder.agent.progress_watch import Watcher
from hanglab.recorder.case.records import TriggerKind

#: A job that has moved within so many seconds moves ...
_STILL = 2.0
#: ... and must do so for so many, or as long as a hang takes, until the hang was none.
_LEAST = 5.0


class AfterCapture:
    """``hang_after`` is the time without movement that counts as a hang, in seconds."""

    def __init__(self, hang_after: float) -> None:
        #: Seconds for which a job must move again until its hang was none.
        self.patience = max(_LEAST, hang_after)
        #: Whether anything has moved since the capture.
        self.moved = False
        self._stuck = False
        #: When the job was seen to move again (monotonic).
        self._resumed: float | None = None

    def begin(self) -> None:
        """There is a new capture, or none any more."""
        self.moved = False
        self._resumed = None

    def look(
        self, watcher: Watcher, kind: TriggerKind, failed: bool
    ) -> Literal["", "stuck", "resumed"]:
        """``stuck`` once, after a capture of another ``kind`` than a hang's."""
        if kind != "no_progress":
            if self._stuck or not watcher.hung():
                return ""
            self._stuck = True
            return "stuck"
        # What is freed by a timeout moves too, for a moment, before it fails.
        if failed or watcher.quiet_s > _STILL or not watcher.alive:
            self._resumed = None
        elif watcher.moved and self._resumed is None:
            self._resumed = time.monotonic()
        if self._resumed is not None and time.monotonic() - self._resumed > self.patience:
            return "resumed"
        return ""
