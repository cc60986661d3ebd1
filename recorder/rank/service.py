"""The recorder's thread in the rank: beats, copies counters, answers requests.

A request is one line of JSON on a stream socket, an answer one line each:

``{"command": "dump"}``
    writes flight_recorder.pickle and answers ``{"done": "buffer"}``, then
    groups.json and flight_recorder_stacks.pickle and answers ``{"done": "all"}``.
    Either answer carries ``problems``, a list of texts.
``{"command": "buffer"}``
    answers ``{"buffer": "..."}``, Flight Recorder's without stacks in base64, null where there is
    none, and writes nothing.
``{"command": "stacks"}``
    answers ``{"threads": [...]}``: every thread as records.ThreadStack.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hanglab.recorder.rank.thread_frames import line_number, steady_frames

#: Times between looks at where the rank stands, in seconds; a beat follows after all of
#: them.  They differ so as not to keep time with the job's own loops.
LOOKS = (0.037, 0.053, 0.041, 0.069)
#: Names of the recorder's own threads begin with this.
THREAD_NAME = "hanglab-recorder"
#: A longer path does not fit into the address of a unix socket.
_PATH_BYTES = 100


class Service:
    """Runs ``look`` every 50 ms or so, ``beat`` every 200 ms and ``answer`` for each request.

    All in one daemon thread.
    """

    def __init__(
        self,
        address: Path,
        look: Callable[[], None],
        beat: Callable[[], None],
        answer: Callable[[str], list[Callable[[], dict[str, Any]]]],
    ) -> None:
        self.address = address
        self._look = look
        self._beat = beat
        self._answer = answer
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        """Listen if that can be had, and run in any case.

        An interpreter that ends ends this thread by pthread_exit, for which glibc loads a library
        (``pthread_cancel_init``); where the job has no descriptor left that would abort it.
        """
        with contextlib.suppress(OSError):
            ctypes.CDLL("libgcc_s.so.1")
        with contextlib.suppress(OSError):
            self._listener = _listen(self.address)
        self._thread.start()

    def leave_in_child(self) -> None:
        """Close the socket in a forked child, where the thread is gone."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.close()
            self._listener = None

    def _run(self) -> None:
        while True:
            with contextlib.suppress(Exception):
                self._beat()
            for seconds in LOOKS:
                with contextlib.suppress(Exception):
                    self._look()
                try:
                    self._wait(seconds)
                except Exception:
                    # The socket is broken; beats go on without it.
                    self._listener = None

    def _wait(self, seconds: float) -> None:
        """Wait so long, or until a request has been answered."""
        listener = self._listener
        poll = select.poll()
        if listener is not None:
            poll.register(listener, select.POLLIN)
        if not poll.poll(seconds * 1000) or listener is None:
            return
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            connection.settimeout(2.0)
            line = connection.makefile("rb").readline(4096)
            try:
                command = json.loads(line)["command"]
            except (ValueError, KeyError, TypeError):
                return
            with _no_collections():
                for part in self._answer(str(command)):
                    connection.sendall(json.dumps(part()).encode() + b"\n")


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """A context in which this thread, which makes many objects there, starts no collection.

    A finalizer of the job would run in it, and may wait for its peers.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _listen(address: Path) -> socket.socket | None:
    if len(os.fsencode(address)) > _PATH_BYTES:
        return None
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(address))
        os.chmod(address, 0o600)
        listener.listen(4)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def current_stacks() -> list[dict[str, Any]]:
    """Every thread's stack but the recorder's own, as records.ThreadStack has it."""
    with steady_frames:
        return _stacks()


def _stacks() -> list[dict[str, Any]]:
    threads = {t.ident: t for t in threading.enumerate()}
    stacks = []
    for ident, top in sys._current_frames().items():
        thread = threads.get(ident)
        name = thread.name if thread is not None else ""
        if name.startswith("hanglab-"):
            continue
        frames: list[dict[str, Any]] = []
        frame: Any = top
        while frame is not None and len(frames) < 256:
            code = frame.f_code
            frames.append(
                {"function": code.co_name, "file": code.co_filename, "line": line_number(frame)}
            )
            frame = frame.f_back
        stacks.append(
            {
                "frames": frames,
                "name": name,
                "os_thread_id": thread.native_id if thread is not None else None,
                "main": thread is threading.main_thread(),
            }
        )
    return stacks
