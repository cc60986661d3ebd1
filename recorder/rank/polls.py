"""Questions that a rank's main thread asks again and again while it comes no further.

A rank that polls for a file, or for a key of a Store, stands in no call that would tell what
for: it sleeps most of the time.  So the calls that ask are watched, but only while nothing of
the rank moves: a job that moves is left as it is.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType
from typing import Any

from hanglab.recorder.rank.hooks import Hooked
from hanglab.recorder.system.mount_table import read_mounts

#: Seconds without an operation, step or section after which the watch begins.
REST_S = 0.4
#: A question that was asked so often, and that late at most beyond twice its usual pace, is asked
#: still.
FEWEST_TIMES = 4
LATE_S = 1.0
#: Functions of ``os`` that tell of a file or folder by its path, or try to make it.
ASKING = ("stat", "lstat", "access", "listdir", "scandir", "open")
#: Questions that are kept, and characters of one.
_MOST = 64
_LONGEST = 512
#: The system's own, whatever stands in ``os`` when it is called.
_LSTAT, _STAT = os.lstat, os.stat
_OPEN = open
#: Kinds of file systems whose times are by the host's own clock.
_OF_HOST = re.compile(r"ext[234]|xfs|btrfs|zfs|f2fs|tmpfs|overlay")
#: Those by which many functions ask.
_STATUS = ("stat", "lstat")
#: Modules by which programs ask ``os``.
_MODULES = frozenset({"genericpath", "posixpath", "pathlib"})
#: Sets of ``os`` in which others look a function up to learn what it can do.
_ABILITIES = ("supports_dir_fd", "supports_effective_ids", "supports_fd",
              "supports_follow_symlinks")  # fmt: skip


class PollWatch(Hooked):
    """Counts equal questions with equal answers, from the first beat at rest to the next move.

    ``moved`` gives numbers that change whenever the rank comes further.
    """

    def __init__(
        self,
        moved: Callable[[], tuple[int, ...]],
        is_user: Callable[[str], bool],
        prefix_of: Callable[[Any], str],
    ) -> None:
        super().__init__()
        self._moved = moved
        self._is_user = is_user
        self._prefix_of = prefix_of
        self._main = threading.main_thread().ident
        self._latest = moved()
        self._rests_since = time.monotonic()
        #: The one that was asked last comes last.
        self._questions: OrderedDict[tuple[str, str, str], _Repeated] = OrderedDict()
        #: torch's class of stores, once it has been imported.
        self._store: type | None = None
        self._wrappers: dict[tuple[Any, str], Any] = {}

    def watch_stores(self, store: type) -> None:
        """``store`` is torch's class ``Store``; from now on its ``check`` is a question, too."""
        self._store = store

    def look(self) -> None:
        """Begin or end the watch: to be called every so often."""
        now, moved = time.monotonic(), self._moved()
        if moved != self._latest:
            self._latest, self._rests_since = moved, now
            if self._hooks:
                self.uninstall()
            self._questions.clear()
        elif not self._hooks and now - self._rests_since >= REST_S:
            self._install()

    def polling_since_ns(self) -> int:
        """Monotonic time of the first of the oldest questions that are still asked; 0 if none."""
        now = time.monotonic()
        asked = [one.first for one in list(self._questions.values()) if one.goes_on(now)]
        return int(min(asked) * 1e9) if asked and self._moved() == self._latest else 0

    def rows(self) -> list[dict[str, Any]]:
        """Rows as records.Poll has them, the most frequent first; none of what was asked once."""
        if self._moved() != self._latest:
            return []
        now = time.monotonic()
        rows = [
            {
                "kind": kind,
                "prefix": prefix,
                "what": what,
                "call": ", ".join(sorted(one.calls)),
                "found": one.found,
                "value": one.value,
                **(self._changed(what) if kind == "file" and one.found else {}),
                "count": one.count,
                "asked_s": one.last - one.first,
                "ago_s": now - one.last,
                "file": one.site[0],
                "function": one.site[1],
                "line": one.site[2],
            }
            for (kind, prefix, what), one in list(self._questions.items())
            if one.count > 1
        ]
        return sorted(rows, key=lambda row: -row["count"])

    def _install(self) -> None:
        for name in ASKING:
            self._put(os, name, self._file_question)
        self._put(builtins, "open", self._file_question)
        if self._store is not None:
            self._put(self._store, "check", self._key_question)
            self._put(self._store, "add", self._counter_question)

    def _put(self, owner: Any, name: str, wrapper: Callable[[str, Any], Any]) -> None:
        original = vars(owner)[name]
        ours = self._wrappers.get((owner, name))
        if ours is None or ours.__wrapped__ is not original:
            ours = self._wrappers[owner, name] = wrapper(name, original)
        if owner is os:
            for ability in _ABILITIES:
                able: set[Any] = getattr(os, ability, set())
                if original in able:
                    able.add(ours)
        self._hooks.put(owner, name, ours)

    def _file_question(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def ask_for_file(*args: Any, **kwargs: Any) -> Any:
            try:
                answer = original(*args, **kwargs)
            except OSError as error:
                self._note("file", "", name, args[:1], isinstance(error, FileExistsError))
                raise
            # A file that was opened is at work: only to try in vain is to ask.
            if name != "open":
                self._note("file", "", name, args[:1], answer is not False)
            return answer

        return ask_for_file

    def _key_question(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def ask_for_key(*args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            keys = args[1] if len(args) > 1 else kwargs.get("keys", ())
            prefix = self._prefix_of(args[0]) if args else ""
            with contextlib.suppress(TypeError):
                for key in list(keys)[:_MOST]:
                    self._note("key", prefix, name, (key,), bool(answer))
            return answer

        return ask_for_key

    def _counter_question(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def read_counter(*args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            # To add nothing is to read.
            if args and (args[2] if len(args) > 2 else kwargs.get("amount")) == 0:
                key = args[1:2] or (kwargs.get("key"),)
                self._note("key", self._prefix_of(args[0]), name, key, True, answer)
            return answer

        return read_counter

    def _note(
        self,
        kind: str,
        prefix: str,
        call: str,
        asked: tuple[Any, ...],
        found: bool,
        value: int | None = None,
    ) -> None:
        """Count a question; never raises, as it runs inside a call of the job's."""
        if threading.get_ident() != self._main or not asked:
            return
        with contextlib.suppress(Exception):
            what = os.fspath(asked[0])
            if not isinstance(what, str) or len(what) > _LONGEST:
                return
            if kind == "file" and not os.path.isabs(what):
                what = os.path.join(os.getcwd(), what)
            key = kind, prefix, what
            question = self._questions.get(key)
            if question is None and len(self._questions) >= _MOST:
                # Imports ask for hundreds of files before the rank comes to what it waits for.
                self._questions.popitem(last=False)
            if question is None or (question.found, question.value) != (found, value):
                question = self._questions[key] = _Repeated(found, value)
            self._questions.move_to_end(key)
            question.count += 1
            question.last = time.monotonic()
            asking = sys._getframe(2)
            question.calls.add(_asked_by(asking) or call if call in _STATUS else call)
            question.site = self._site(asking)

    def _changed(self, path: str) -> dict[str, Any]:
        """Time of the file's latest change, and whether by the clock of this host."""
        with contextlib.suppress(OSError, ValueError):
            # Files of an overlay may bear the number of a layer below it, folders do not.
            device = _STAT(os.path.dirname(path)).st_dev
            return {"changed_ns": _LSTAT(path).st_mtime_ns, "by_host": _is_of_host(device)}
        return {}

    def _site(self, frame: FrameType | None) -> tuple[str, str, int]:
        """Innermost line of user code above the call."""
        while frame is not None:
            code = frame.f_code
            if self._is_user(code.co_filename):
                return code.co_filename, code.co_name, frame.f_lineno or 0
            frame = frame.f_back
        return "", "", 0


def _asked_by(frame: FrameType | None) -> str:
    """The function that a program called: ``exists`` asks for less than the ``stat`` that it is."""
    call = ""
    while frame is not None:
        # Their files are frozen, or not, by Python's version.
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _MODULES:
            break
        call, frame = frame.f_code.co_name, frame.f_back
    return call


def _is_of_host(device: int) -> bool:
    """True of a file system that no server keeps, as far as its kind is known."""
    with _OPEN("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        mounts = read_mounts(table.read())
    number = os.major(device), os.minor(device)
    return any(one.device == number and _OF_HOST.fullmatch(one.filesystem) for one in mounts)


class _Repeated:
    """One question, and what it was answered each time."""

    __slots__ = ("calls", "count", "first", "found", "last", "site", "value")

    def __init__(self, found: bool, value: int | None) -> None:
        self.calls: set[str] = set()
        self.found = found
        self.value = value
        self.count = 0
        self.first = self.last = time.monotonic()
        self.site = ("", "", 0)

    def goes_on(self, now: float) -> bool:
        """True if it was asked often, and not longer ago than is usual for it."""
        if self.count < FEWEST_TIMES:
            return False
        return now - self.last <= LATE_S + 2 * (self.last - self.first) / (self.count - 1)
