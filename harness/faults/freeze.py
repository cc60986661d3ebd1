"""A process that is stopped, as a debugger, a cgroup freezer or a paused machine does."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from hanglab.harness.faults.fault import SignalFault


@dataclass(frozen=True, kw_only=True)
class Freeze(SignalFault):
    """Stops the rank with SIGSTOP.  It stays stopped until the job is ended, which kills it."""

    signal = signal.SIGSTOP
