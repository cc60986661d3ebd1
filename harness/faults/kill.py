"""A process that dies without a word, as under the kernel's out-of-memory killer."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from hanglab.harness.faults.fault import SignalFault


@dataclass(frozen=True, kw_only=True)
class Kill(SignalFault):
    """Ends the rank with SIGKILL."""

    signal = signal.SIGKILL
