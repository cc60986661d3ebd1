"""The agent's work: it watches, captures when that is due, and obeys.

The commands and events are those of :mod:`hanglab.recorder.agent.driver_channel`.
"""

from __future__ import annotations

import contextlib
import select
import time
from pathlib import Path

from hanglab.recorder.agent import snapshots
from hanglab.recorder.agent.after_capture import AfterCapture
from hanglab.recorder.agent.capture import Capture
from hanglab.recorder.agent.capture_socket import CaptureSocket
from hanglab.recorder.agent.case_metadata import CaseMetadata
from hanglab.recorder.agent.driver_channel import KINDS, Command, DriverChannel
from hanglab.recorder.agent.host.sampler import HostSampler
from hanglab.recorder.agent.profiles import Profiles
from hanglab.recorder.agent.progress_watch import POLL, Watcher
from hanglab.recorder.agent.rank_ends import RankEnds
from hanglab.recorder.agent.remote_ranks import RemoteRanks
from hanglab.recorder.agent.standalone import StandaloneAgent
from hanglab.recorder.agent.torch_dumps import TorchDumps
from hanglab.recorder.agent.unregistered_ranks import UNRECORDED, UnregisteredRanks
from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.attach.registration import register
from hanglab.recorder.attach.tree import FoundRank, has_torch
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.file_kinds import Scope
from hanglab.recorder.case.records import Exit, JobRecord, Trigger, TriggerKind
from hanglab.recorder.case.writer import clock
from hanglab.recorder.rank.self_recording import clear_away
from hanglab.recorder.system import socket_folders
from hanglab.recorder.system.host_name import host_name

#: After a rank failed, the others are captured once they have rested this long ...
_GRACE_QUIET = 0.3
#: ... or this long after it, in any case.
_GRACE = 3.0
#: Seconds between two searches for ranks that have registered.
_DISCOVERY = 0.15
#: Whoever asks for a capture gets it while the job moves, having rested for less than this,
#: or after so many times the time that a hang takes.
_REST = 0.5
_PATIENT = 4.0
#: After torch began to write dumps by itself, all ranks' are there within this time.
_DUMPS = 1.0


class Session:
    """Watches, obeys and reports, until told to finish."""

    def __init__(
        self,
        case: Path,
        runtime: Path,
        world_size: int | None,
        hang_after: float,
        dumps: TorchDumps | None = None,
        stderr: tuple[Path, int, Path | None] | None = None,
        slow_factor: float | None = None,
        standalone: StandaloneAgent | None = None,
        several: bool = False,
        unaided: bool = False,
        first_attempt: int = 0,
    ) -> None:
        """``several``: the job has agents on other hosts too, and one who commands them all.

        ``unaided``: nobody tells how ranks ended.  Attempts before ``first_attempt`` are of a job
        that was recorded into the same Case before.
        """
        self._case = case
        self._runtime = runtime
        self._several = several
        self._standalone = standalone
        own = folders.host_folder(case, host_name())
        self._host_folder = own
        self._dumps = dumps or TorchDumps(None, None)
        #: When torch was seen to have written dumps by itself (monotonic), and whose.
        self._dumped: tuple[float, str] | None = None
        self._capture = Capture(own.name, runtime, self._dumps)
        miss = self._capture.miss
        self._control = CaptureSocket(runtime)
        self._rank_ends = RankEnds(runtime, miss)
        self._unregistered: UnregisteredRanks | None = None
        self._watcher = Watcher(own, runtime, hang_after, first_attempt)
        if several:
            self._watcher.see_others(RemoteRanks(own.parent, own.name))
        if first_attempt:
            snapshots.forget(own, Scope.HOST)
        self._host = HostSampler(own, runtime, miss)
        self._host_folder = own
        self._slow_factor = slow_factor
        self._metadata = CaseMetadata(case, own, self._capture, stderr, several)
        self._job = JobRecord(world_size, clock(), hang_after)
        self._captured = False
        self._after_capture = AfterCapture(hang_after)
        #: The capture that was said to be due.
        self._due: tuple[TriggerKind, str] | None = None
        self._last_discovery = 0.0
        #: When somebody asked for a capture (monotonic), and with what words.
        self._asked: tuple[float, str] | None = None
        self._channel = DriverChannel(listening=standalone is None)
        #: Whether nobody tells how ranks ended.
        self._unaided = unaided or standalone is not None
        #: Ranks that run, as last told.
        self._told_alive = -1
        #: Whether somebody has asked this process to end, and whether that was told.
        self._asked_to_end = self._told_asked = False
        self._finishing = False

    def run(self) -> None:
        """Returns once finished."""
        self._metadata.write_host()
        self._host.start()
        self._profiles = Profiles(
            self._case,
            self._runtime,
            self._host_folder.name,
            lambda: self._watcher.ranks,
            self._capture.miss,
            self._slow_factor,
        )
        self._tell("ready", host=self._host_folder.name)
        socket_folders.sweep()
        next_look = time.monotonic()
        while not self._finishing and not self._channel.over:
            self._wait(max(0.0, next_look - time.monotonic()))
            if time.monotonic() < next_look:
                continue
            next_look = time.monotonic() + POLL
            try:
                self._look()
            except Exception as error:
                self._capture.miss("watch", f"{type(error).__name__}: {error}")
        self._finish()

    # Watching.

    def _look(self) -> None:
        watcher = self._watcher
        if time.monotonic() - self._last_discovery > _DISCOVERY:
            self._discover()
        self._profiles.look()
        self._profiles.overlook()
        watcher.look()
        if self._standalone is not None and self._standalone.over(watcher.ranks, watcher.alive):
            self._finishing = True
        self._rank_ends.watch.read(watcher.ranks)
        # After the capture only the launcher, where it tells, can tell an end of the job's
        # own from one that it brought about itself.
        if not self._captured or self._unaided:
            self._rank_ends.notice(watcher.ranks)
        if self._unaided and not self._several and not self._captured:
            self._rank_ends.look_for_timeouts(watcher.alive)
        if self._asked is not None:
            self._serve(*self._asked)
        self._tell_of_ranks()
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
            self._rank_ends.watch.read(self._watcher.ranks)
            self._rank_ends.notice(self._watcher.ranks, last=True)
            failure = self._rank_ends.failure
            if failure is not None and not self._captured:
                self._take("exit", failure[1])
        except Exception as error:
            self._capture.miss("watch", f"{type(error).__name__}: {error}")

    def _discover(self) -> bool:
        """Find ranks that have registered; True if they are of a new attempt."""
        self._last_discovery = time.monotonic()
        found = self._watcher.discover()
        if self._unregistered is not None:
            found += self._unregistered.look(self._watcher)
        for rank in found:
            self._follow(rank)
        anew = not self._several and self._rank_ends.started_anew(self._watcher.ranks)
        if anew:
            self._look_at_new_attempt()
        self._host.follow(self._watcher.alive)
        dumped = self._dumps.look()
        if dumped and self._dumped is None:
            names = ", ".join(map(str, sorted(dumped)))
            self._dumped = time.monotonic(), f"torch wrote the dump of rank {names} by itself"
        return anew

    def _look_at_new_attempt(self) -> None:
        """Forget what was captured of ranks that ended, and were started anew."""
        trigger = self._job.trigger
        if not self._captured or not self._unaided or trigger is None:
            return
        if trigger.kind in ("exit", "timeout_dump"):
            self._forget_capture()
            self._tell("resumed")

    def _follow(self, rank: WatchedRank) -> None:
        self._rank_ends.watch.add(rank)
        self._tell("rank", rank=rank.rank, attempt=rank.attempt, pid=rank.pid)

    # Capturing.

    def _what_is_due(self) -> tuple[TriggerKind, str] | None:
        """The capture that the state of the ranks calls for."""
        watcher = self._watcher
        if self._dumped is not None and time.monotonic() - self._dumped[0] > _DUMPS:
            return "timeout_dump", self._dumped[1]
        if self._rank_ends.gave_up is not None:
            return "timeout_dump", self._rank_ends.gave_up
        if self._rank_ends.failure is not None:
            since, detail = self._rank_ends.failure
            past = time.monotonic() - since
            if not watcher.alive or past > _GRACE or min(watcher.quiet_s, past) >= _GRACE_QUIET:
                return "exit", detail
        elif watcher.hung():
            return "no_progress", ""
        return None

    def ask_to_end(self) -> None:
        """Somebody wants this process to end, and with it the ranks; for a signal handler."""
        self._asked_to_end = True

    def _tell_of_ranks(self) -> None:
        """Tell whoever commands several agents how many ranks run here."""
        alive = len(self._watcher.alive)
        if self._several and alive != self._told_alive:
            self._told_alive = alive
            self._tell("alive", ranks=alive)
        if self._asked_to_end and not self._told_asked:
            self._told_asked = True
            self._tell("asked_to_end")

    def _say_due(self, due: tuple[TriggerKind, str] | None) -> None:
        if due == self._due:
            return
        self._due = due
        if due is None:
            self._tell("undue")
        else:
            self._tell("due", kind=due[0], detail=due[1], quiet_s=self._watcher.quiet_s)

    def _serve(self, asked: float, detail: str) -> None:
        """Capture for somebody, once it shows whether the job moves."""
        watcher = self._watcher
        patient = time.monotonic() - asked <= _PATIENT * self._after_capture.patience
        if self._captured:
            self._asked = None
            self._control.answer(self._case)
        elif watcher.hung():
            self._asked = None
            self._take("no_progress", detail)
        elif watcher.quiet_s < _REST or not patient:
            self._asked = None
            self._take("request", detail)
        else:
            self._control.tell_rest(watcher.quiet_s, watcher.threshold())

    def _take(self, kind: TriggerKind, detail: str) -> None:
        watcher = self._watcher
        if self._discover() and kind == "exit":
            return  # Of an attempt that is past.
        if self._job.trigger is not None:
            # An earlier one was asked for; its samples are not to be mixed with these.
            self._forget_capture()
        quiet_s = watcher.quiet_s
        start = time.monotonic()
        trigger = Trigger(kind, clock(), quiet_s, detail)
        try:
            watcher.take_census()
            alive = watcher.alive
            gone = [rank for rank in watcher.ranks if rank not in alive]
            self._capture.take(alive, self._host, gone)
            for rank in alive:
                rank.overlook_io()
        except Exception as error:
            self._capture.miss("capture", f"{type(error).__name__}: {error}")
        # One that was asked for leaves the job to be captured once more when it hangs.
        self._captured = kind != "request" or not self._unaided
        self._after_capture.begin()
        self._job.trigger = trigger
        self._metadata.write_job(self._job)
        if self._unaided:
            self._metadata.write_manifest(watcher.ranks)
        self._control.answer(self._case)
        seconds = time.monotonic() - start
        if self._standalone is not None:
            self._standalone.say(_told_of(trigger), self._case)
        self._tell("captured", trigger=trigger, seconds=seconds)

    def _look_after_capture(self) -> None:
        self._after_capture.moved = self._after_capture.moved or self._watcher.moved
        trigger = self._job.trigger
        if trigger is None or not self._unaided:
            return
        failed = self._rank_ends.failure is not None
        what = self._after_capture.look(self._watcher, trigger.kind, failed)
        if what == "resumed" and self._job.interrupted is not None:
            return  # it tidies up
        if what == "resumed" and not self._several:
            self._forget_capture()
        if what:
            self._tell(what)

    def _forget_capture(self) -> None:
        self._captured = False
        self._after_capture.begin()
        self._job.trigger = None
        for rank in self._watcher.ranks:
            snapshots.forget(rank.folder)
        snapshots.forget(self._host_folder, Scope.HOST)

    # Obeying.

    def _wait(self, timeout: float) -> None:
        """Wait so long, or until something has been said or has happened, and take it in."""
        poll = select.poll()
        commands, requests = self._channel.descriptor, self._control.descriptor
        for descriptor in (commands, requests, *self._rank_ends.watch.descriptors):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(timeout * 1000):
            if descriptor == requests:
                asked = self._control.accept()
                if asked is not None:
                    self._asked = time.monotonic(), asked
            elif descriptor == commands:
                for command in self._channel.read():
                    self._obey(command)
            else:
                self._rank_ends.watch.notice(descriptor)

    def _obey(self, command: Command) -> None:
        if command.command == "capture":
            self._take(KINDS.get(command.kind, "request"), command.detail)
        elif command.command == "exited":
            self._told_of_exit(command)
        elif command.command == "tree":
            self._unregistered = UnregisteredRanks(
                self._case, self._host_folder.name, command.pid, self._capture
            )
            self._unaided = True
        elif command.command == "adopt":
            self._adopt(command)
        elif command.command == "status":
            self._tell("status", moved=self._after_capture.moved, quiet_s=self._watcher.quiet_s)
        elif command.command == "interrupted":
            self._job.interrupted = self._job.interrupted or clock()
        elif command.command == "ending":
            self._rank_ends.ending = True
        elif command.command == "several":
            self._join_others()
        elif command.command == "forget":
            self._forget_capture()
        elif command.command == "failure":
            self._rank_ends.failed(command.detail)
        elif command.command == "finish":
            self._job.ended_by_recorder = command.ended_by_recorder
            self._finishing = True
        else:
            self._channel.complain(f"unknown command {command.command!r}")

    def _join_others(self) -> None:
        if not self._several:
            self._several = self._metadata.several = True
            self._watcher.see_others(RemoteRanks(self._host_folder.parent, self._host_folder.name))

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
            rank = WatchedRank(*register(self._case, self._host_folder.name, found), outside=True)
        except OSError as error:
            self._capture.miss("rank", f"{UNRECORDED}; {error.strerror}", command.rank)
            return
        # Whoever is asked for by somebody is at work, as far as it has torch.
        rank.joined = has_torch(command.pid)
        self._capture.miss(files.PROGRESS.name, UNRECORDED, command.rank)
        self._watcher.adopt(rank)
        self._follow(rank)

    def _told_of_exit(self, command: Command) -> None:
        end = Exit(clock(), command.code, command.signal, command.by_recorder)
        self._discover()
        rank = self._watcher.find(command.rank, command.attempt)
        if rank is None:
            # It died before it could register; its exit is evidence all the same.
            folder = self._host_folder / folders.RANKS / f"{command.rank}.{command.attempt}"
            self._metadata.write_rank_stderr(folder, command.rank, command.stderr)
            self._rank_ends.write(folder, command.rank, end)
            return
        self._metadata.write_rank_stderr(rank.folder, command.rank, command.stderr)
        rank.gone = True
        self._rank_ends.note(rank, end)

    def _tell(self, event: str, **content: object) -> None:
        self._channel.tell(event, **content)

    # The end.

    def _finish(self) -> None:
        if self._unaided:
            self._look_last()
        self._host.close()
        self._profiles.close()
        self._look_for_unrecorded()
        ranks = self._watcher.ranks
        self._metadata.write_movements(ranks)
        self._capture.keep_stderr_of_gone(ranks)
        for rank in ranks:
            self._dumps.keep(rank)
            snapshots.drop_unchanged(rank.folder)
            if rank.stat() is None:
                snapshots.make_sparse(rank.folder)
            if self._job.trigger is not None:
                self._capture.miss_what_ended(rank)
        self._job.ended = clock()
        if self._channel.over and self._unregistered is not None:
            self._metadata.several = False  # whoever would have written for all is gone
        self._metadata.write_job(self._job)
        problems = self._metadata.write_manifest(ranks)
        self._watcher.close()
        self._control.close()
        self._rank_ends.watch.close()
        self._tell("finished", problems=problems, absent=self._metadata.absent(ranks))
        if self._standalone is not None:
            clear_away(self._runtime)
        else:
            # Whoever made it does so, too, unless it was killed.
            socket_folders.remove_unused(self._runtime)

    def _look_for_unrecorded(self) -> None:
        """Ranks that could not record themselves left a note with the reason."""
        with contextlib.suppress(OSError):
            for path in sorted(self._runtime.glob("not-recorded-*.txt")):
                self._capture.miss("rank", path.read_text(errors="replace").strip()[:500])


def _told_of(trigger: Trigger) -> str:
    if trigger.kind == "no_progress":
        return f"nothing has moved for {trigger.quiet_s:.0f} s; captured"
    return f"{trigger.detail or trigger.kind}; captured"
