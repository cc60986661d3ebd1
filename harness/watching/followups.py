"""Work after a capture that may take long: a Case sent to a store, an event to a collector."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hanglab.harness.watching.capturing import RunningCommand

#: Seconds between two tries, of which there are so many: a store may be away for a night.
_AGAIN_S = 300.0
_TRIES = 200
#: Seconds for a last try of what is left at the end: systemd waits for 90 for a service to end.
_LAST_S = 20.0


@dataclass(order=True)
class _Followup:
    """A command that has not done its work yet; the earlier due, the earlier its turn."""

    due_s: float
    number: int
    words: Sequence[str]
    #: Exit codes of a command that has done its work.
    good: Sequence[int]
    tries: int = _TRIES

    def __str__(self) -> str:
        return f"hanglab {' '.join(self.words)}"


class Followups:
    """Commands of hanglab, run one after the other by a thread; those that fail, again later."""

    def __init__(self, say: Callable[[str], None], again_s: float = _AGAIN_S) -> None:
        self._say = say
        self._again_s = again_s
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._waiting: list[_Followup] = []
        #: Tried in vain since the end came.
        self._left: list[_Followup] = []
        #: Runs now, besides those that wait.
        self._current: _Followup | None = None
        #: Monotonic time by which all is to be over; None until the end has come.
        self._until_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="hanglab-followups", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Commands that have not done their work yet."""
        with self._changed:
            return len(self._waiting) + (self._current is not None)

    def add(self, *words: str, good: Sequence[int] = (0,)) -> None:
        with self._changed:
            heapq.heappush(self._waiting, _Followup(0.0, next(self._numbers), words, good))
            self._changed.notify()

    def close(self, wait_s: float = _LAST_S) -> None:
        """Try what waits once more, for so long at most; what is left undone is said."""
        with self._changed:
            self._until_s = time.monotonic() + wait_s
            self._changed.notify()
        self._thread.join()
        for left in sorted(self._left + self._waiting):
            self._say(f"left undone: {left}")

    def _run(self) -> None:
        while (followup := self._next()) is not None:
            code, problem = self._done(followup)
            followup.tries -= 1
            followup.due_s = time.monotonic() + self._again_s
            failed = code not in followup.good
            with self._changed:
                self._current = None
                over = self._until_s is not None
                if failed and over:
                    self._left.append(followup)
                elif failed and followup.tries:
                    heapq.heappush(self._waiting, followup)
            if failed and (over or followup.tries):
                again = "" if over else ", and is tried again"
                self._say(f"hanglab {followup.words[0]} did not succeed{again}: {problem}")
            elif failed:
                self._say(f"given up: {followup}: {problem}")

    def _next(self) -> _Followup | None:
        """The next one that is due, which is waited for; None once all is over."""
        with self._changed:
            while True:
                now_s = time.monotonic()
                if self._until_s is not None and (not self._waiting or now_s >= self._until_s):
                    return None
                if self._until_s is not None or (self._waiting and self._waiting[0].due_s <= now_s):
                    self._current = heapq.heappop(self._waiting)
                    return self._current
                self._changed.wait(self._waiting[0].due_s - now_s if self._waiting else None)

    def _done(self, followup: _Followup) -> tuple[int, str]:
        try:
            command = RunningCommand(followup.words)
        except OSError as error:
            return -1, str(error)
        while not command.ended():
            time.sleep(0.1)
            if self._until_s is not None and time.monotonic() > self._until_s:
                command.kill()
        code, _, problem = command.take()
        return code, problem or f"it ended with {code}"
