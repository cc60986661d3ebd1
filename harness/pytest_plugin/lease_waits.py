"""A job that waits for its part of the machine: noted, and told where it takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

#: Waiting is told once it has lasted this long, and again at most so often, in seconds.
PATIENCE_S = 3.0


class LeaseWait:
    """While it is open, ``announce`` hears from a thread of its own what is still waited for."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        #: All that was waited for, in order.
        self.reasons: list[str] = []
        self._announce = announce
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> LeaseWait:
        return self

    def tell(self, reason: str) -> None:
        """Hears for what the job waits from now on."""
        self.reasons.append(reason)
        if self._thread is None and not self._over.is_set():
            self._thread = threading.Thread(target=self._run, name="hanglab-waiting", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Nothing is announced any more once this returns."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def _run(self) -> None:
        announced = ""
        while not self._over.wait(PATIENCE_S):
            reason = self.reasons[-1]
            if reason != announced:
                self._announce(reason)
                announced = reason
