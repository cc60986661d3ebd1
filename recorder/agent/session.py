"""The agent's conversation with the harness, one JSON document per line.

Commands on standard input::

    {"command": "capture", "kind": "deadline|request|interrupt|exit", "detail": "..."}
    {"command": "exited", "rank": 1, "attempt": 0, "code": 1, "signal": null,
     "by_recorder": false, "stderr": "/path/to/log"}
    {"command": "tree", "pid": 4711}
    {"command": "adopt", "pid": 4711, "rank": 1, "world_size": 4, "attempt": 0}
    {"command": "status"}
    {"command": "ending"}
    {"command": "failure", "detail": "rank 3 ended with code 1"}
    {"command": "finish", "ended_by_recorder": true}

``tree`` names the process below which ranks are to be sought that did not
register; from then on the agent finds out for itself how ranks ended.
``adopt`` names a rank that nobody has recorded so far.
``ending`` says that whatever ends from now on is ended by hanglab.
``failure`` tells of a rank on another host.

Events on standard output::

    {"event": "ready"}
    {"event": "rank", "rank": 1, "attempt": 0, "pid": 4711}
    {"event": "captured", "trigger": {...}, "seconds": 0.4}
    {"event": "status", "moved": false, "quiet_s": 31.5}
    {"event": "resumed"}
    {"event": "stuck"}
    {"event": "due", "kind": "no_progress", "detail": "", "quiet_s": 1.6}
    {"event": "undue"}
    {"event": "finished", "problems": [...], "absent": [...]}

``resumed``: what looked like a hang was none, its capture has been dropped.
``stuck``: after a capture for another reason nothing has moved for as long as
counts as a hang.  Where a job has an agent on each of several hosts, none of them
captures unasked: ``due`` says that this one would, ``undue`` that it would no
longer; job.json and the manifest are left to whoever commands them, who is told
what is absent.  The end of standard input is ``finish``.  Whatever goes wrong,
an event follows.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from hanglab.recorder.agent import capture as capturing
from hanglab.recorder.agent.capture import Capture
from hanglab.recorder.agent.control import Control
from hanglab.recorder.agent.elsewhere import Elsewhere
from hanglab.recorder.agent.exits import ExitWatch
from hanglab.recorder.agent.host.sampler import HostSampler
from hanglab.recorder.agent.profiles import Profiles
from hanglab.recorder.agent.solitude import Solitude
from hanglab.recorder.agent.strays import ESCAPED, UNRECORDED, Strays
from hanglab.recorder.agent.timeouts import TorchDumps
from hanglab.recorder.agent.watched import WatchedRank
from hanglab.recorder.agent.watcher import POLL, Watcher
from hanglab.recorder.attach.registration import register
from hanglab.recorder.attach.tree import FoundRank, has_torch
from hanglab.recorder.case import folders
from hanglab.recorder.case.records import Absence, Exit, Host, Job, Trigger, TriggerKind
from hanglab.recorder.case.writer import clock, write_manifest, write_record, write_tail
from hanglab.recorder.rank.alone import clear_away

#: After a rank failed, the others are captured once they have rested this long ...
_GRACE_QUIET = 0.3
#: ... or this long after it, in any case.
_GRACE = 3.0
#: Seconds between two searches for ranks that have registered.
_DISCOVERY = 0.15
#: For a rank that vanished, the launcher may still tell how.
_WAIT_FOR_EXIT = 0.5
#: A job that has moved within so many seconds moves, and must do so for so many seconds
#: until the hang that was captured counts for none.
_STILL = 2.0
_RESUMED_LEAST = 5.0
#: Whoever asks for a capture gets it while the job moves, having rested for less than this,
#: or after so many times the time that a hang takes.
_REST = 0.5
_PATIENT = 4.0
#: After torch began to write dumps by itself, all ranks' are there within this time.
_DUMPS = 1.0
_UNTOLD = "nobody told how it ended"
_KINDS: dict[str, TriggerKind] = {
    "deadline": "deadline",
    "request": "request",
    "interrupt": "interrupt",
    "exit": "exit",
}


class Command(msgspec.Struct):
    """Any command; which fields count depends on ``command``."""

    command: str
    kind: str = "request"
    detail: str = ""
    rank: int = -1
    pid: int = 0
    attempt: int = 0
    world_size: int | None = None
    local_rank: int | None = None
    code: int | None = None
    signal: int | None = None
    by_recorder: bool = False
    stderr: str | None = None
    ended_by_recorder: bool = False


class Session:
    """Watches, obeys and reports, until told to finish."""

    def __init__(
        self,
        case: Path,
        runtime: Path,
        world_size: int | None,
        hang_after: float,
        dumps: TorchDumps | None = None,
        stderr: tuple[Path, int] | None = None,
        slow_factor: float | None = None,
        solitude: Solitude | None = None,
        several: bool = False,
    ) -> None:
        """``several``: the job has agents on other hosts too, and one who commands them all."""
        self._case = case
        self._runtime = runtime
        host = socket.gethostname()
        self._host_folder = folders.host_folder(case, host)
        self._dumps = dumps or TorchDumps(None, None)
        #: Standard error of the whole job, and the byte at which it begins there.
        self._stderr = stderr
        self._dumped: tuple[float, str] | None = None
        self._capture = Capture(self._host_folder.name, runtime, self._dumps)
        self._control = Control(runtime)
        self._exit_watch = ExitWatch(runtime)
        self._strays: Strays | None = None
        self._slow_factor = slow_factor
        #: Whoever ends from now on is ended by hanglab.
        self._ending = False
        self._stuck = False
        #: When the job was seen to move again after the capture of a hang (monotonic).
        self._resumed: float | None = None
        self._moved_since = False
        self._several = several
        #: The capture that was said to be due.
        self._due: tuple[TriggerKind, str] | None = None
        own = self._host_folder
        elsewhere = Elsewhere(own.parent, own.name) if several else None
        self._watcher = Watcher(own, runtime, hang_after, elsewhere)
        self._host = HostSampler(self._host_folder, self._capture.miss)
        self._job = Job(world_size, clock(), hang_after)
        self._captured = False
        self._last_discovery = 0.0
        #: When a rank was seen to have failed (monotonic), and how.
        self._failure: tuple[float, str] | None = None
        self._vanished: dict[Path, float] = {}
        #: When somebody asked for a capture (monotonic), and with what words.
        self._asked: tuple[float, str] | None = None
        self._pending = b""
        self._solitude = solitude
        #: Whether commands come on standard input.
        self._listening = solitude is None
        #: Whether nobody tells how ranks ended.
        self._unaided = solitude is not None
        self._finishing = False

    def run(self) -> None:
        """Returns once finished."""
        self._write_host()
        self._host.start()
        self._profiles = Profiles(
            self._case,
            self._runtime,
            self._host_folder.name,
            lambda: self._watcher.ranks,
            self._capture.miss,
            self._slow_factor,
        )
        self._tell({"event": "ready"})
        next_look = time.monotonic()
        while not self._finishing:
            timeout = max(0.0, next_look - time.monotonic())
            self._read_commands(timeout)
            if time.monotonic() < next_look:
                continue
            next_look = time.monotonic() + POLL
            try:
                self._look()
            except Exception as error:
                self._capture.miss("watch", f"{type(error).__name__}: {error}")
        self._finish()

    def _look(self) -> None:
        watcher = self._watcher
        if time.monotonic() - self._last_discovery > _DISCOVERY:
            self._discover()
        self._profiles.look()
        self._profiles.overlook()
        watcher.look()
        if self._solitude is not None and self._solitude.over(watcher.ranks, watcher.alive):
            self._finishing = True
        self._exit_watch.read(watcher.ranks)
        self._notice_exits()
        if self._asked is not None:
            self._serve(*self._asked)
        if self._captured:
            self._look_after_capture()
            return
        due = self._what_is_due()
        if self._several:
            self._say_due(due)
        elif due is not None:
            self._take(*due)

    def _look_last(self) -> None:
        """Learn how the last ranks ended: whoever collected them has told by now."""
        try:
            self._discover()
            self._watcher.look()
            self._exit_watch.read(self._watcher.ranks)
            self._notice_exits()
            if self._failure is not None and not self._captured and not self._several:
                self._take("exit", self._failure[1])
        except Exception as error:
            self._capture.miss("watch", f"{type(error).__name__}: {error}")

    def _what_is_due(self) -> tuple[TriggerKind, str] | None:
        """The capture that the state of the ranks calls for."""
        watcher = self._watcher
        if self._dumped is not None and time.monotonic() - self._dumped[0] > _DUMPS:
            return "timeout_dump", self._dumped[1]
        if self._failure is not None:
            since, detail = self._failure
            past = time.monotonic() - since
            if not watcher.alive or past > _GRACE or min(watcher.quiet_s, past) >= _GRACE_QUIET:
                return "exit", detail
        elif watcher.hung():
            return "no_progress", ""
        return None

    def _say_due(self, due: tuple[TriggerKind, str] | None) -> None:
        if due == self._due:
            return
        self._due = due
        if due is None:
            self._tell({"event": "undue"})
            return
        kind, detail = due
        quiet_s = self._watcher.quiet_s
        self._tell({"event": "due", "kind": kind, "detail": detail, "quiet_s": quiet_s})

    def _serve(self, asked: float, detail: str) -> None:
        """Capture for somebody, once it shows whether the job moves."""
        watcher = self._watcher
        if self._captured:
            self._asked = None
            self._control.answer(self._case)
        elif watcher.hung():
            self._asked = None
            self._take("no_progress", detail)
        elif watcher.quiet_s < _REST or time.monotonic() - asked > _PATIENT * self._patience:
            self._asked = None
            self._take("request", detail)

    def _look_after_capture(self) -> None:
        watcher = self._watcher
        self._moved_since = self._moved_since or watcher.moved
        trigger = self._job.trigger
        if trigger is None or not self._unaided:
            return
        if trigger.kind != "no_progress":
            if not self._stuck and watcher.hung():
                self._stuck = True
                self._tell({"event": "stuck"})
            return
        # What is freed by a timeout moves too, for a moment, before it fails.
        if self._failure is not None or watcher.quiet_s > _STILL or not watcher.alive:
            self._resumed = None
        elif watcher.moved and self._resumed is None:
            self._resumed = time.monotonic()
        if self._resumed is not None and time.monotonic() - self._resumed > self._patience:
            self._forget_capture()
            self._tell({"event": "resumed"})

    @property
    def _patience(self) -> float:
        """Seconds for which a job must move again until its hang was none."""
        return max(_RESUMED_LEAST, self._job.hang_after_s or 0.0)

    def _forget_capture(self) -> None:
        self._captured = self._moved_since = False
        self._resumed = None
        self._job.trigger = None
        for rank in self._watcher.ranks:
            for name in (folders.STACKS, folders.PROCESSES, folders.MOVEMENT):
                with contextlib.suppress(OSError):
                    (rank.folder / name).unlink()

    def _discover(self) -> None:
        self._last_discovery = time.monotonic()
        found = self._watcher.discover()
        if self._strays is not None:
            found += self._strays.look(self._watcher)
        for rank in found:
            self._exit_watch.add(rank)
            self._tell(
                {"event": "rank", "rank": rank.rank, "attempt": rank.attempt, "pid": rank.pid}
            )
        self._host.follow(self._watcher.alive)
        dumped = self._dumps.look()
        if dumped and self._dumped is None:
            names = ", ".join(map(str, sorted(dumped)))
            self._dumped = time.monotonic(), f"torch wrote the dump of rank {names} by itself"

    def _notice_exits(self) -> None:
        """Ranks that ended without the launcher having told how.

        After the capture only the launcher can tell an end of the job's own from
        one that it brought about itself; ``ending`` tells where there is none.
        """
        if self._captured and not self._unaided:
            return
        now = time.monotonic()
        for rank in self._watcher.ranks:
            if rank.exit is not None and _untold(rank.exit) and rank.seen_status is not None:
                end = capturing.ended(rank.seen_status, rank.exit.by_recorder)
                self._exited(rank, msgspec.structs.replace(end, at=rank.exit.at))
            if not rank.gone or rank.exit is not None:
                continue
            since = self._vanished.setdefault(rank.folder, now)
            waiting = now - since < _WAIT_FOR_EXIT and not self._finishing
            if waiting and rank.seen_status is None:
                continue
            if rank.seen_status is not None:
                self._exited(rank, capturing.ended(rank.seen_status, self._ending))
            elif self._ending:
                self._exited(rank, Exit(clock(), None, int(signal.SIGKILL), True))
            elif rank.phase == "exiting":
                self._exited(rank, Exit(clock()))
            else:
                self._exited(rank, Exit(clock()), vanished=True)

    def _exited(self, rank: WatchedRank, end: Exit, vanished: bool = False) -> None:
        rank.exit = end
        if not _untold(end):
            try:
                write_record(rank.folder / folders.EXIT, end)
            except OSError as error:
                self._capture.miss(folders.EXIT, f"could not be written: {error}", rank.rank)
        else:
            self._capture.miss(folders.EXIT, _UNTOLD, rank.rank)
        if self._failure is None and (vanished or capturing.failing(end)):
            self._failure = time.monotonic(), f"rank {rank.rank} {capturing.told(end)}"

    def _take(self, kind: TriggerKind, detail: str) -> None:
        watcher = self._watcher
        self._discover()
        if self._job.trigger is not None:
            # An earlier one was asked for; its samples are not to be mixed with these.
            self._forget_capture()
        quiet_s = watcher.quiet_s
        start = time.monotonic()
        trigger = Trigger(kind, clock(), quiet_s, detail)
        try:
            watcher.take_census()
            alive = watcher.alive
            self._capture.take(alive, self._host)
            for rank in alive:
                rank.overlook_io()
        except Exception as error:
            self._capture.miss("capture", f"{type(error).__name__}: {error}")
        # One that was asked for leaves the job to be captured once more when it hangs.
        self._captured = kind != "request" or not self._unaided
        self._moved_since = False
        self._job.trigger = trigger
        self._write_job()
        if self._unaided:
            self._write_manifest()
        self._control.answer(self._case)
        seconds = time.monotonic() - start
        if self._solitude is not None:
            self._solitude.say(_told_of(trigger), self._case)
        self._tell({"event": "captured", "trigger": trigger, "seconds": seconds})

    # Commands.

    def _read_commands(self, timeout: float) -> None:
        poll = select.poll()
        if self._listening:
            poll.register(0, select.POLLIN | select.POLLHUP)
        if self._control.descriptor is not None:
            poll.register(self._control.descriptor, select.POLLIN)
        for descriptor in self._exit_watch.descriptors:
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(timeout * 1000)]
        for descriptor in ready:
            if descriptor == self._control.descriptor:
                asked = self._control.accept()
                if asked is not None:
                    self._asked = time.monotonic(), asked
            elif descriptor != 0:
                self._exit_watch.notice(descriptor)
        if 0 not in ready:
            return
        try:
            block = os.read(0, 1 << 16)
        except OSError:
            block = b""
        if not block:
            self._finishing = True
            return
        self._pending += block
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            if line.strip():
                self._obey(line)

    def _obey(self, line: bytes) -> None:
        try:
            command = msgspec.json.decode(line, type=Command)
        except msgspec.MsgspecError as error:
            self._tell({"event": "error", "detail": f"not a command: {error}"})
            return
        if command.command == "capture":
            self._take(_KINDS.get(command.kind, "request"), command.detail)
        elif command.command == "exited":
            self._told_of_exit(command)
        elif command.command == "tree":
            self._strays = Strays(self._case, self._host_folder.name, command.pid, self._capture)
            self._unaided = True
        elif command.command == "adopt":
            self._adopt(command)
        elif command.command == "status":
            quiet_s = self._watcher.quiet_s
            self._tell({"event": "status", "moved": self._moved_since, "quiet_s": quiet_s})
        elif command.command == "ending":
            self._ending = True
        elif command.command == "failure":
            if self._failure is None:
                self._failure = time.monotonic(), command.detail
        elif command.command == "finish":
            self._job.ended_by_recorder = command.ended_by_recorder
            self._finishing = True
        else:
            self._tell({"event": "error", "detail": f"unknown command {command.command!r}"})

    def _adopt(self, command: Command) -> None:
        found = FoundRank(
            command.pid,
            command.rank,
            command.world_size,
            command.local_rank,
            command.attempt,
            "",
            "",
        )
        try:
            rank = register(self._case, self._host_folder.name, found)
        except OSError as error:
            self._capture.miss("rank", f"{UNRECORDED}; {error.strerror}", command.rank)
            return
        # Whoever is asked for by somebody is at work, as far as it has torch.
        rank.joined = has_torch(command.pid)
        self._capture.miss(folders.PROGRESS, UNRECORDED, command.rank)
        self._watcher.adopt(rank)
        self._exit_watch.add(rank)
        self._tell({"event": "rank", "rank": rank.rank, "attempt": rank.attempt, "pid": rank.pid})

    def _told_of_exit(self, command: Command) -> None:
        end = Exit(clock(), command.code, command.signal, command.by_recorder)
        self._discover()
        rank = self._watcher.find(command.rank, command.attempt)
        if rank is None:
            # It died before it could register; its exit is evidence all the same.
            folder = self._host_folder / folders.RANKS / f"{command.rank}.{command.attempt}"
            self._write_tail(folder, command)
            try:
                write_record(folder / folders.EXIT, end)
            except OSError as error:
                self._capture.miss(folders.EXIT, f"could not be written: {error}", command.rank)
            if self._failure is None and capturing.failing(end):
                detail = f"rank {command.rank} {capturing.told(end)}"
                self._failure = time.monotonic(), detail
            return
        self._write_tail(rank.folder, command)
        rank.gone = True
        self._exited(rank, end)

    def _write_tail(self, folder: Path, command: Command) -> None:
        if command.stderr is None:
            return
        try:
            write_tail(folder / folders.STDERR, Path(command.stderr))
        except OSError as error:
            self._capture.miss(folders.STDERR, str(error.strerror), command.rank)

    # Writing and telling.

    def _finish(self) -> None:
        if self._unaided:
            self._look_last()
        self._host.close()
        self._profiles.close()
        self._look_for_unrecorded()
        for rank in self._watcher.ranks:
            if not (rank.folder / folders.MOVEMENT).exists():
                try:
                    write_record(rank.folder / folders.MOVEMENT, rank.movement(time.monotonic()))
                except OSError as error:
                    self._capture.miss(folders.MOVEMENT, str(error.strerror), rank.rank)
        for rank in self._watcher.ranks:
            self._dumps.keep(rank)
            if self._job.trigger is not None:
                self._capture.miss_what_ended(rank)
        self._job.ended = clock()
        self._write_job()
        problems = self._write_manifest()
        self._watcher.close()
        self._control.close()
        self._exit_watch.close()
        self._tell({"event": "finished", "problems": problems, "absent": self._absent()})
        if self._solitude is not None:
            clear_away(self._runtime)

    def _absent(self) -> list[Absence]:
        """What is missing in the end: a rank may have registered after it was attached to."""
        ranks = self._watcher.ranks
        recorded = {rank.rank for rank in ranks if (rank.folder / folders.PROGRESS).exists()}
        ended = {rank.rank for rank in ranks if (rank.folder / folders.EXIT).exists()}
        return [
            absence
            for absence in self._capture.absent
            if not (absence.reason == ESCAPED and absence.rank in recorded)
            and not (absence.reason == _UNTOLD and absence.rank in ended)
        ]

    def _write_manifest(self) -> list[str]:
        self._write_stderr()
        if self._several:
            return []
        try:
            write_manifest(self._case, "hanglab", self._absent())
        except OSError as error:
            return [f"manifest.json: {error}"]
        return []

    def _look_for_unrecorded(self) -> None:
        """Ranks that could not record themselves left a note with the reason."""
        try:
            for path in sorted(self._runtime.glob("not-recorded-*.txt")):
                self._capture.miss("rank", path.read_text(errors="replace").strip()[:500])
        except OSError:
            return

    def _write_host(self) -> None:
        uname = os.uname()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        host = Host(uname.nodename, len(os.sched_getaffinity(0)), memory, uname.release, clock())
        try:
            folders.make_private(self._case)
            write_record(self._host_folder / folders.HOST, host)
        except OSError as error:
            self._capture.miss(folders.HOST, str(error.strerror))

    def _write_stderr(self) -> None:
        if self._stderr is None:
            return
        source, start = self._stderr
        try:
            write_tail(self._host_folder / folders.STDERR, source, start=start)
        except OSError as error:
            self._capture.miss(folders.STDERR, str(error.strerror))

    def _write_job(self) -> None:
        if self._several:
            return
        try:
            write_record(self._case / folders.JOB, self._job)
        except OSError as error:
            self._capture.miss(folders.JOB, str(error.strerror))

    def _tell(self, event: dict[str, Any]) -> None:
        try:
            sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
            sys.stdout.buffer.flush()
        except (OSError, ValueError):
            # Nobody listens any more: put the Case in order and go.
            self._finishing = True


def _told_of(trigger: Trigger) -> str:
    if trigger.kind == "no_progress":
        return f"nothing has moved for {trigger.quiet_s:.0f} s; captured"
    return f"{trigger.detail or trigger.kind}; captured"


def _untold(end: Exit) -> bool:
    return end.code is None and end.signal is None
