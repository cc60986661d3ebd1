"""What time it is in a container: by asking there."""

from __future__ import annotations

import time
from typing import Any

from hanglab.harness.faults.outside.containers import asking
from hanglab.harness.probes.probe import Reading

#: How far the answer may be off: asking takes a while, on a machine under load longer.
_TOLERANCE_S = 2.0


class ClockProbe:
    """``date`` in the container, between two looks at the clock of the host."""

    def __init__(self, container: Any, seconds: float) -> None:
        self._container, self._seconds = container, seconds

    def struck(self) -> Reading:
        begun = time.time()
        with asking("ask for the time"):
            code, said = self._container.exec_run(["date", "+%s.%N"])
        ended = time.time()
        if code:
            raise OSError(f"date: {said.decode(errors='replace').strip()}")
        ahead = float(said) - (begun + ended) / 2
        near = abs(ahead - self._seconds) <= _TOLERANCE_S + (ended - begun) / 2
        return Reading(
            near,
            f"its clock is {ahead:+.1f} s from the host's",
            {"ahead_s": round(ahead, 3), "asking_s": round(ended - begun, 3)},
        )

    def ended(self) -> Reading:
        return Reading(True, "the clock is the container's own, and gone with it")
