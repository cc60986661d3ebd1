"""Work after a capture that may take long: a Case sent to a store, an event to a collector."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from hanglab.harness.watching.capturing import RunningCommand

#: Seconds between two tries, of which there are so many: a store may be away for a night.
_AGAIN_S = 300.0
_TRIES = 200


class Followups:
    """Commands of hanglab, run one after the other by a thread; those that fail, again later."""

    def __init__(self, say: Callable[[str], None], again_s: float = _AGAIN_S) -> None:
        self._say = say
        self._again_s = again_s
        self._over = threading.Event()
        self._waiting: queue.SimpleQueue[tuple[float, int, Sequence[str]]] = queue.SimpleQueue()
        #: Commands that have not done their work yet.
        self.pending = 0
        self._thread = threading.Thread(target=self._run, name="hanglab-followups", daemon=True)
        self._thread.start()

    def add(self, *words: str) -> None:
        self.pending += 1
        self._waiting.put((0.0, _TRIES, words))

    def close(self) -> None:
        """Ends what runs; what is left undone is said."""
        self._over.set()
        self._thread.join()
        while not self._waiting.empty():
            _, _, words = self._waiting.get()
            self._say(f"left undone: hanglab {' '.join(words)}")

    def _run(self) -> None:
        while not self._over.wait(0.2):
            if self._waiting.empty():
                continue
            due, tries, words = self._waiting.get()
            if time.monotonic() < due:
                self._waiting.put((due, tries, words))
                continue
            code, problem = self._done(words)
            if code == 0:
                self.pending -= 1
            elif self._over.is_set() or tries > 1:
                self._say(f"hanglab {words[0]} did not succeed, and is tried again: {problem}")
                self._waiting.put((time.monotonic() + self._again_s, tries - 1, words))
            else:
                self.pending -= 1
                self._say(f"given up: hanglab {' '.join(words)}: {problem}")

    def _done(self, words: Sequence[str]) -> tuple[int, str]:
        try:
            command = RunningCommand(words)
        except OSError as error:
            return 1, str(error)
        while not command.ended():
            if self._over.wait(0.1):
                command.kill()
        code, _, problem = command.take()
        return code, problem
