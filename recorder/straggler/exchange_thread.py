"""The detector's own thread: carries windows between ranks, and watches over a job that stands.

Everything that could block happens here.  The job's threads hand over bytes, and
where they want an answer they wait for it no longer than they said.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterable

from hanglab.recorder.straggler.exchange import Exchange

#: Seconds between two looks at what others have published: the first, and the longest.
#: Between them, so much of the time that has been waited: what comes is seen soon after.
_FIRST_LOOK, _LONGEST_LOOK = 0.0003, 0.01
_SOON = 0.1
#: Seconds between two looks at whether the job still moves.
BEAT = 0.5
#: Seconds for which the end of a detector waits for what is still to be published.
FAREWELL = 2.0
#: And those for which the interpreter's end waits for a thread that was left behind then.  A
#: thread that comes back from a store's call while the interpreter ends takes the process down
#: ("terminate called without an active exception"): it is unwound through what must not throw.
LAST_FAREWELL = 10.0


class ExchangeTask:
    """Keys to be read until every one is there and accepted, or until the time is up.

    What was published by then is found, accepted or not.
    """

    def __init__(
        self, keys: Iterable[str], accept: Callable[[str, bytes], bool], seconds: float
    ) -> None:
        self.done = threading.Event()
        self.found: dict[str, bytes] = {}
        self._open = list(keys)
        self._accept = accept
        self._began = time.monotonic()
        self._deadline = self._began + seconds

    def wait(self, seconds: float) -> dict[str, bytes]:
        """Result so far, once the task is done or after so many seconds."""
        self.done.wait(seconds)
        return dict(self.found)

    def look(self, exchange: Exchange) -> float | None:
        """Read what is there; seconds until the next look, None if there is to be none."""
        new = exchange.read(self._open)
        self.found.update(new)
        self._open = [k for k in self._open if k not in new or not self._accept(k, new[k])]
        now = time.monotonic()
        if not self._open or now >= self._deadline:
            self.done.set()
            return None
        pause = min(max(_FIRST_LOOK, _SOON * (now - self._began)), _LONGEST_LOOK)
        return min(pause, self._deadline - now)


class ExchangeThread:
    """One per detector.  ``connect()`` gives the exchange, as soon as there is one.

    ``beat()`` is called twice a second or so.
    """

    def __init__(self, connect: Callable[[], Exchange | None], beat: Callable[[], None]) -> None:
        self._connect = connect
        self._beat = beat
        self._exchange: Exchange | None = None
        self._wake = threading.Condition()
        #: Latest value per key that waits to be published.
        self._outgoing: dict[str, bytes] = {}
        self._errands: list[ExchangeTask] = []
        self._stopping = False
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name="hanglab-straggler", daemon=True)
        self._thread.start()
        atexit.register(self._end_with_interpreter)

    def publish(self, key: str, value: bytes) -> None:
        with self._wake:
            self._outgoing[key] = value
            self._wake.notify()

    def gather(
        self, keys: Iterable[str], accept: Callable[[str, bytes], bool], seconds: float
    ) -> ExchangeTask:
        """Have keys read; see ExchangeTask."""
        task = ExchangeTask(keys, accept, seconds)
        with self._wake:
            self._errands.append(task)
            self._wake.notify()
        return task

    def stop(self, seconds: float = FAREWELL) -> None:
        """End the thread once everything is published, or after so many seconds."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)
        if not self._thread.is_alive():
            atexit.unregister(self._end_with_interpreter)

    def _end_with_interpreter(self) -> None:
        self.stop(LAST_FAREWELL)

    def _run(self) -> None:
        next_beat = time.monotonic() + BEAT
        pause = BEAT
        while True:
            with self._wake:
                if not self._outgoing and not self._stopping:
                    self._wake.wait(max(0.0, pause))
                outgoing, self._outgoing = self._outgoing, {}
                errands = list(self._errands)
                stopping = self._stopping
            pause = self._carry(outgoing, errands)
            if stopping and not outgoing:
                return
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + BEAT
                with contextlib.suppress(Exception):
                    self._beat()
            pause = min(pause, next_beat - now)

    def _carry(self, outgoing: dict[str, bytes], errands: list[ExchangeTask]) -> float:
        """Publish, look once for every errand; seconds until something must be done again."""
        if not outgoing and not errands:
            return BEAT
        pause = BEAT
        try:
            if self._exchange is None:
                self._exchange = self._connect()
            if self._exchange is None:
                # There is no process group: nobody could read it.
                self._dismiss(errands)
                return BEAT
            for key, value in outgoing.items():
                self._exchange.publish(key, value)
            for task in errands:
                next_look = task.look(self._exchange)
                if next_look is None:
                    self._dismiss([task])
                else:
                    pause = min(pause, next_look)
            self.problem = ""
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
            self._exchange = None
            self._dismiss(errands)
        return pause

    def _dismiss(self, errands: list[ExchangeTask]) -> None:
        with self._wake:
            for task in errands:
                task.done.set()
                if task in self._errands:
                    self._errands.remove(task)
