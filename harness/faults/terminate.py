"""A process that is asked to end, as schedulers do before they pre-empt it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from hanglab.harness.faults.fault import SignalFault


@dataclass(frozen=True, kw_only=True)
class Terminate(SignalFault):
    """Sends the rank SIGTERM."""

    signal = signal.SIGTERM
