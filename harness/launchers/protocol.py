"""Protocols of launchers: the job that is asked for, and the one that is handed back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hanglab.harness.errors import HanglabError
from hanglab.harness.faults.fault import Fault
from hanglab.harness.hosts import Hosts

#: How long after a plan's deadline a supervisor waits before it ends the job by
#: itself: the runner needs the time between for its capture.
GRACE_S = 30.0


class LaunchError(HanglabError):
    """A job could not be started."""

    advice = "Look at the log folder of the run; `hanglab doctor` checks what a launcher needs."


class SupervisorLost(LaunchError):
    """The process that watches a job's ranks is gone; the job was ended with it."""

    advice = "Something outside ended hanglab's processes: look for the OOM killer in `dmesg`."


class SupervisorSilent(LaunchError):
    """The process that starts a job's ranks does not answer."""

    advice = "The machine may be overloaded, or hanglab's processes stopped: look at `ps`."


class RemainsLeft(LaunchError):
    """Some process of a job could not be ended."""

    advice = (
        "A process that SIGKILL does not end hangs in the kernel (state D in `ps`), "
        "usually on a dead disk or network mount."
    )


@dataclass(frozen=True)
class JobPlan:
    """One job to start."""

    run_dir: Path
    case_dir: Path
    #: A scenario file, or a user's script.
    script: Path
    #: Name of the scenario's function; None runs ``script`` as ``__main__``.
    function: str | None
    world_size: int
    faulty: bool
    seed: int
    backend: str
    #: Seconds after which the whole job has to be over; a supervisor ends it
    #: :data:`GRACE_S` later even if hanglab itself does not answer any more.
    deadline_s: float
    #: Variables on top of the caller's environment.
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    #: Hosts to spread the ranks over; None leaves it to the launcher.
    nodes: int | None = None
    #: Those that may have to be prepared before the ranks are started.
    faults: tuple[Fault, ...] = ()
    #: Called where the job has hosts of its own: when all are there and no rank has begun, and
    #: when every rank has ended and the hosts have not.  Neither raises.
    begun: Callable[[Hosts], None] | None = None
    over: Callable[[Hosts], None] | None = None
    #: Called where the job's nodes let its faults strike (``RunningJob.injects``): the number of
    #: a fault, among those that strike in this variant, and the fields of its Strike.
    struck: Callable[[int, Mapping[str, Any]], None] | None = None
    #: Set when hanglab is to end: a job that waits in a queue waits no longer.
    stop: threading.Event | None = None

    @property
    def log_dir(self) -> Path:
        """Folder of the ranks' output: ``rank<r>.out`` and ``rank<r>.err``."""
        return self.run_dir / "log"

    @property
    def agent_log(self) -> Path:
        """File of the output of a recorder's agent."""
        return self.log_dir / "agent.err"


@dataclass(frozen=True)
class RankExit:
    """End of a rank's process: a code or a signal.

    Both are None where the launcher saw it end but could not learn how.
    """

    rank: int
    code: int | None
    signal: int | None
    #: File with the rank's standard error.
    stderr: Path
    #: The launcher ended it, for the job was over.
    by_launcher: bool = False


class Recording(Protocol):
    """The recording of a job as its runner drives it."""

    #: Process ids as the ranks registered them, in the namespace of hanglab.
    pids: dict[int, int]
    #: The trigger of the capture, once it is done.
    captured: dict[str, Any] | None

    def poll(self) -> bool:
        """Takes in what has happened; True once the capture is done."""

    def capture(self, kind: str, detail: str) -> None:
        """Asks for a capture now."""

    def wait_captured(self, timeout_s: float) -> bool:
        """Waits for the capture; False if it was not done in time."""

    def exited(
        self,
        rank: int,
        code: int | None,
        signal: int | None,
        stderr: Path,
        *,
        by_recorder: bool,
    ) -> None:
        """Tells how a rank ended."""

    def finish(self, *, ended_by_recorder: bool) -> None:
        """Has the Case put in order, and waits for that."""

    def close(self) -> None:
        """Ends whatever records."""


class RunningJob(Protocol):
    """A started job.  Its methods may be called from any thread, one at a time."""

    #: Its nodes let the plan's faults strike: the ranks' processes are none of this machine's.
    injects: bool

    @property
    def runtime_dir(self) -> Path:
        """Short temporary folder, TMPDIR of the ranks; removed when the job is ended."""

    @property
    def pids(self) -> Mapping[int, int]:
        """Process id of each rank that is known so far."""

    @property
    def hosts(self) -> Hosts:
        """Hosts on which its ranks run."""

    def record(self, hang_after_s: float) -> Recording:
        """Has the job recorded into its Case from now on; to be called once."""

    def events(self, timeout: float) -> list[RankExit]:
        """Ranks that ended since the last call; waits up to ``timeout`` seconds for the first.

        After :meth:`end` it still gives those that had ended by themselves before.
        Raises :class:`SupervisorLost` when the job's supervisor is gone, and
        another :class:`LaunchError` when the ranks could not be started after
        all or the supervisor ended the job long after its deadline.
        """

    def alive(self) -> bool:
        """True if some rank has not ended yet, as far as :meth:`events` has told."""

    def end(self) -> None:
        """Ends every process of the job, waits until none is left, removes what it left behind.

        Calling it again does nothing.  Raises :class:`RemainsLeft` when a
        process cannot be ended.
        """


class Launcher(Protocol):
    name: str

    def prepare(self) -> None:
        """Begins in the background what the first start would have to wait for."""

    def start(self, plan: JobPlan) -> RunningJob:
        """Starts the ranks.  Raises :class:`LaunchError`."""

    def close(self) -> None:
        """Ends what the launcher itself keeps running, and every job it started."""
