"""One recorded command from its start to its exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hanglab.harness.launchers.supervision import leftovers
from hanglab.harness.launchers.supervision.agent_process import Agent, AgentDied
from hanglab.harness.launchers.supervision.channel import readable
from hanglab.harness.launchers.supervision.descendants import (
    ChildSignal,
    become_subreaper,
    children_of,
    end_below,
    freeze_below,
    is_janitor,
)
from hanglab.harness.recording import environment, relay
from hanglab.harness.recording.command import RecordedCommand
from hanglab.harness.recording.foreign_ranks import kill_away, ranks_away
from hanglab.harness.recording.joint_agents import JointAgents
from hanglab.harness.recording.other_nodes import OtherNodes, attempt_options
from hanglab.recorder.system import procfs
from hanglab.recorder.system.host_name import host_name
from hanglab.recorder.system.socket_folders import Runtime

if TYPE_CHECKING:
    from hanglab.analyzer.engine import Examination
    from hanglab.analyzer.verdict import Verdict

Then = Literal["kill", "leave"]

#: What hanglab exits with when it has ended a job that hung.
ENDED = 124
#: For a capture that a signal has to wait for.
_CAPTURE_S = 5.0
#: For the agent to say whether the job moves.
_ANSWER_S = 2.0
#: For a launcher to end ranks that are none of its descendants.
_LAUNCHER_S = 5.0
_PACE_S = 0.05

_TO_GROUP = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_AT_ONCE = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH, signal.SIGTSTP)
_AFTER_CAPTURE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class RecordingRequest:
    """``words`` is the command, ``case`` an empty folder of the caller's."""

    words: Sequence[str]
    case: Path
    hang_after_s: float
    then: Then
    #: Take a trace when something takes so many times its median.
    profile_slow: float | None = None


@dataclass
class RecordingOutcome:
    """End of a recorded command.  ``code`` is the exit code for hanglab itself."""

    code: int
    verdict: Verdict | None = None


class RecordingSession:
    """Runs one command.  Whatever fails in the recording, the command is run to its end."""

    def __init__(self, request: RecordingRequest) -> None:
        self._request = request
        self._folder = Runtime()
        self._runtime = self._folder.path
        #: File of what hanglab itself wrote where the job's standard error goes.
        self._own_words: Path | None = None
        self._agent: Agent | JointAgents | None = None
        self._signals: deque[int] = deque()
        self._interrupted = False
        self._ended_it = False
        self._asked = False
        self._shown = False
        self._seen: set[int] = set()
        become_subreaper()
        self._woken = ChildSignal()

    def run(self) -> RecordingOutcome:
        """Raises NoSuchCommand if the command cannot be started."""
        streams = relay.set_up(self._runtime / "stderr.txt")
        self._relay = streams.relay
        host = self._host_folder()
        self._environment = environment.recorded_environment(
            os.environ, self._request.case, self._runtime, host
        )
        with self._catching() as ignored:
            try:
                self._start_agent(streams)
                self._command = RecordedCommand(
                    self._request.words, self._environment, streams, ignored
                )
            except BaseException:
                streams.close()
                self._close()
                raise
            streams.close()
            try:
                self._tell_tree()
                self._nodes = OtherNodes(
                    self._request.case,
                    host.name,
                    self._command.pid,
                    self._request.hang_after_s,
                    self._runtime,
                    [*dump_options(os.environ), *attempt_options()],
                )
                self._watch()
                return self._finish()
            finally:
                self._command.give_terminal_back()
                self._close()

    def _host_folder(self) -> Path:
        from hanglab.recorder.case import evidence_files as files
        from hanglab.recorder.case import folders

        host = folders.host_folder(self._request.case, host_name())
        with contextlib.suppress(OSError):
            folders.make_private(host / files.TIMEOUT_DUMPS.name)
        return host

    # The agent.  None of this may disturb the command.

    def _start_agent(self, streams: relay.Streams) -> None:
        options = dump_options(self._environment)
        options += attempt_options()
        if streams.tail is not None:
            options += ["--stderr", str(streams.tail), "--stderr-from", str(streams.start)]
            if streams.relay is None:  # hanglab's own words go into the same file
                self._own_words = self._runtime / "own_words"
                options += ["--stderr-without", str(self._own_words)]
        if self._request.profile_slow is not None:
            options += ["--profile-slow", str(self._request.profile_slow)]
        try:
            self._agent = Agent(
                self._request.case,
                self._runtime,
                world_size=None,
                hang_after_s=self._request.hang_after_s,
                log=self._runtime / "agent.err",
                options=options,
            )
        except OSError as error:
            self._lose_agent(f"it cannot be started: {error.strerror}")

    def _tell_tree(self) -> None:
        if isinstance(self._agent, Agent):
            self._agent.seek_below(os.getpid())

    def _lose_agent(self, reason: str) -> None:
        _say(f"the recorder's agent is gone ({reason}); the job goes on without it")
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.close()

    def _captured(self) -> bool:
        """Takes in what the agent says; whether there is a capture."""
        if self._agent is None:
            return False
        try:
            return self._agent.poll()
        except AgentDied as error:
            self._lose_agent(str(error))
            return False

    # The command's life.

    def _watch(self) -> None:
        """Returns once the command has ended or has been ended."""
        while not self._command.poll():
            readable(self._woken, timeout=_PACE_S)
            self._woken.drain()
            self._collect()
            if self._agent is not None:
                self._agent = self._nodes.look(self._agent)
            while self._signals:
                self._pass_on(self._signals.popleft())
            if self._captured():
                self._look_at_capture()
            else:
                self._shown = False
            if self._ended_it:
                return

    def _look_at_capture(self) -> None:
        agent = self._agent
        if agent is None or agent.captured is None:
            return
        hung = agent.captured.get("kind") == "no_progress"
        if not hung and not agent.stuck:
            return
        if not self._shown:
            self._shown = True
            examined, reason = self._analyze()
            ending = self._request.then == "kill"
            self._show(examined, reason, ending=ending)
            if self._request.then == "kill":
                self._end_job(hung)
            else:
                _say("the job is left as it is; Ctrl-C ends it")

    def _show(self, examined: Examination | None, reason: str, *, ending: bool = True) -> None:
        """The verdict on standard error: standard output is the job's."""
        case = self._request.case
        words = verdict_words(examined, reason, case, ending=ending)
        words += f"hanglab: the Case is {case}\n"
        with contextlib.suppress(OSError):  # nobody reads it
            print(words, end="", file=sys.stderr, flush=True)
            if self._own_words is not None:
                with self._own_words.open("ab") as file:
                    stream = sys.stderr
                    file.write(words.encode(stream.encoding, stream.errors or "strict") + b"\0")

    def _end_job(self, hung: bool) -> None:
        """Unless it moves again after all."""
        agent = self._agent
        if agent is None:
            return
        try:
            moved = agent.moved_since_capture(_ANSWER_S) if hung else False
            if moved is not False:
                _say("the job moves again, so it is not ended")
                return
            agent.ending()
        except AgentDied as error:
            self._lose_agent(str(error))
            return
        self._ended_it = True
        self._end_everything()

    def _end_everything(self) -> None:
        self._end_away()
        spared = self._own_children()
        below = freeze_below(spared)
        segments = leftovers.shared_memory_of(pid for pid in below if not is_janitor(pid))
        self._seen.update(below)
        end_below(self._reaped, self._woken, spare=lambda: spared)
        leftovers.remove_shared_memory(segments, self._seen)

    def _end_away(self) -> None:
        """Ranks that a service has started; the command, which knows it, is asked first."""
        ranks = list(self._agent.pids.values()) if self._agent is not None else []
        elsewhere = isinstance(self._agent, JointAgents) and self._agent.ranks_elsewhere
        if not ranks_away(self._request.case, ranks) and not elsewhere:
            return
        self._command.signal(signal.SIGTERM)
        until = time.monotonic() + _LAUNCHER_S
        while not self._command.poll() and time.monotonic() < until:
            readable(self._woken, timeout=_PACE_S)
            self._woken.drain()
        if isinstance(self._agent, JointAgents):
            try:
                self._nodes.end_ranks(self._agent)
            except AgentDied as error:
                self._lose_agent(str(error))
        kill_away(ranks_away(self._request.case, ranks))

    def _own_children(self) -> list[int]:
        own = self._agent.processes if self._agent is not None else []
        return [*own, self._relay] if self._relay is not None else own

    def _reaped(self, pid: int, status: int) -> None:
        self._seen.add(pid)
        if pid == self._command.pid:
            self._command.status = status

    def _collect(self) -> None:
        """Orphans of the command have become hanglab's children."""
        from hanglab.recorder.rank.reaped_exits import NAME, note_exit

        own = {self._command.pid, *self._own_children()}
        for pid in children_of(os.getpid()):
            if pid in own or procfs.state(pid) != "Z":
                continue
            with contextlib.suppress(OSError):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    note_exit(self._runtime / NAME, ended, status)

    # Signals.

    @contextlib.contextmanager
    def _catching(self) -> Iterator[list[signal.Signals]]:
        """Queues signals; yields those that were ignored already, and stay so."""
        ignored = []
        before = {}
        for number in (*_AFTER_CAPTURE, *_AT_ONCE):
            if signal.getsignal(number) == signal.SIG_IGN:
                ignored.append(number)
            else:
                before[number] = signal.signal(number, self._note)
        try:
            yield ignored
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self._signals.append(number)

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGWINCH and self._relay is not None:
            relay.resize(self._relay)
        if number == signal.SIGTSTP:
            self._suspend()
            return
        if number in _AFTER_CAPTURE:
            self._interrupted = self._interrupted or number == signal.SIGINT
            self._capture_before(signal.Signals(number))
            if self._agent is not None:
                self._agent.interrupted()
        if number in _TO_GROUP:
            self._command.signal_group(number)
        else:
            self._command.signal(number)

    def _capture_before(self, number: signal.Signals) -> None:
        """Once; whoever asks again does not have to wait."""
        if self._agent is None or self._asked or self._captured():
            return
        self._asked = True
        try:
            self._agent.capture("interrupt", f"hanglab was sent {number.name}")
            self._agent.wait_captured(_CAPTURE_S)
        except AgentDied as error:
            self._lose_agent(str(error))

    def _suspend(self) -> None:
        """Ctrl-Z stops the job with hanglab; the agent must not take that for a hang."""
        self._signal_agent(signal.SIGSTOP)
        self._command.signal_group(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._command.signal_group(signal.SIGCONT)
        self._signal_agent(signal.SIGCONT)

    def _signal_agent(self, number: int) -> None:
        for pid in self._agent.processes if self._agent is not None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    # The end.

    def _finish(self) -> RecordingOutcome:
        self._collect()
        self._finish_agent()
        self._drain_relay()
        code = self._command.code if self._command.status is not None else ENDED
        if self._ended_it:
            code = ENDED
        elif self._interrupted:
            code = 130
        examined, reason = self._analyze()
        if not self._ended_it:
            self._show(examined, reason)
        return RecordingOutcome(code, examined.verdict if examined is not None else None)

    def _finish_agent(self) -> None:
        if self._agent is None:
            self._finish_alone()
            return
        try:
            self._agent.poll()
            self._agent.finish(ended_by_recorder=self._ended_it)
        except AgentDied as error:
            self._lose_agent(str(error))
            self._finish_alone()

    def _finish_alone(self) -> None:
        """The Case without its agent: what the ranks wrote, listed."""
        from hanglab.recorder.case.records import Absence
        from hanglab.recorder.case.writer import write_manifest

        absence = Absence("agent", "the recorder's agent ended before the job did")
        with contextlib.suppress(OSError):
            write_manifest(self._request.case, "hanglab", [absence])

    def _drain_relay(self) -> None:
        """Let the last words through; processes that the job left may hold the stream open."""
        until = time.monotonic() + 1.0
        while self._relay is not None and time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._relay, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
                    continue
            return

    def _analyze(self) -> tuple[Examination | None, str]:
        try:
            from hanglab.analyzer.engine import examine
            from hanglab.analyzer.errors import InputError

            try:
                return examine(self._request.case), ""
            except InputError as error:
                return None, f"{error} {error.advice}"
        except Exception as error:  # the job's own code matters more than any verdict
            return None, f"the analyzer failed with {type(error).__name__}: {error}"

    def _close(self) -> None:
        if self._agent is not None:
            self._agent.close()
            self._agent = None
        self._woken.close()
        self._folder.close()


def dump_options(environment: Mapping[str, str]) -> list[str]:
    """Options of the agent for torch's own dumps."""
    from hanglab.recorder.agent.torch_dumps import prefixes

    dumps, pipes = prefixes(environment)
    options = ["--dumps", os.path.abspath(dumps)] if dumps else []
    return options + (["--pipes", os.path.abspath(pipes)] if pipes else [])


def verdict_words(examined: Examination | None, reason: str, case: Path, *, ending: bool) -> str:
    """The verdict as it is printed; ``ending``: nothing of the job can be asked any more."""
    if examined is None:
        return f"hanglab: no verdict: {reason}\n"
    try:
        from hanglab.harness.report.explanation.explaining import explain_examined
        from hanglab.harness.report.panel import make_console
        from hanglab.harness.report.verdict_text import print_explanation

        console = make_console(errors=True)
        with console.capture() as printed:
            print_explanation(console, explain_examined(examined, case, ending=ending))
        return printed.get()
    except Exception as error:
        why = f"not shown in full: {type(error).__name__}: {error}"
        return f"hanglab: {examined.verdict.summary} ({why})\n"


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"hanglab: {text}", file=sys.stderr, flush=True)
