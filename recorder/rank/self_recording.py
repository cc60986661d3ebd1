"""Recording from within: the ranks of a host agree on a Case, and one of them starts the agent.

They meet in a folder of their own among the temporary files, named after what
they have in common: the process that started them and the job's address.  The
agent holds a lock there as long as it lives, so that a later job of the same
parent starts anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.errors import HanglabError
from hanglab.recorder.rank.flight_recorder_switches import switches
from hanglab.recorder.system import procfs, socket_folders
from hanglab.recorder.system.host_name import host_name

HANG_AFTER = 30.0
_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")
#: For the agent to come up; the job waits for it no longer.
_AGENT_S = 10.0
#: Each time somebody else has cleared the place away: as a rule every rank of the host, once.
_ATTEMPTS = 1000


class CannotRecord(HanglabError):
    """The job goes on unrecorded; the text says why."""

    advice = "The job goes on; mend this and start it again to have it recorded."


class _AgentLate(CannotRecord):
    """Nobody knows yet whether the agent runs."""


def begin(out: str | os.PathLike[str] | None, hang_after: float | None) -> None:
    """Set this process's environment as ``hanglab record`` would have.  Raises CannotRecord."""
    seconds = HANG_AFTER if hang_after is None else float(hang_after)
    for attempt in range(_ATTEMPTS):
        try:
            runtime = _meeting_place(out)
            case = _join(runtime, out, seconds)
            break
        except socket_folders.FolderRemoved as error:
            # By the agent of an earlier job, or by a rank that could not start one.
            if attempt == _ATTEMPTS - 1:
                raise CannotRecord(str(error)) from error
        except (OSError, ValueError) as error:
            raise CannotRecord(str(error)) from error
    host = folders.host_folder(case, host_name())
    os.environ.update(switches(os.environ, runtime, host))
    os.environ["HANGLAB_CASE"] = str(case)
    os.environ["HANGLAB_RUNTIME"] = str(runtime)


def _join(runtime: Path, out: str | os.PathLike[str] | None, hang_after: float) -> Path:
    """The Case that all agree on; whoever comes first makes it, and starts the agent."""
    named = runtime / "case"
    with _locked(runtime):
        agent = socket_folders.claim(runtime)
        if agent is None:
            return Path(named.read_text())
        try:
            case = _new_case(out)
            folders.write_whole(named, os.fsencode(case))
            _start_agent(case, runtime, hang_after, agent)
        except _AgentLate:
            raise  # it may come up still, and clears away by itself
        except BaseException:
            _clear(runtime)
            raise
        finally:
            os.close(agent)
    return case


def _meeting_place(out: str | os.PathLike[str] | None) -> Path:
    """A folder with a short path, as unix sockets need, that is this user's.  Raises OSError."""
    parent = os.getppid()
    common = [str(parent), _started(parent), *(os.environ.get(name, "") for name in _JOB_NAMES)]
    common.append("" if out is None else os.path.abspath(out))
    digest = hashlib.sha256("\0".join(common).encode("utf-8", "surrogateescape")).hexdigest()
    folder = socket_folders.meetings() / digest[:12]
    socket_folders.make_meeting(folder)
    return folder


def _started(pid: int) -> str:
    """Start time of a process: its number alone may have been somebody else's before."""
    found = procfs.stat(pid)
    return "" if found is None else str(found.started)


@contextlib.contextmanager
def _locked(runtime: Path) -> Iterator[None]:
    descriptor = socket_folders.hold(runtime, socket_folders.LOCK)
    try:
        yield
    finally:
        os.close(descriptor)


def clear_away(runtime: Path) -> None:
    """Clear away, for the agent at its end: nobody may be about to start another one meanwhile."""
    with contextlib.suppress(OSError), _locked(runtime):
        _clear(runtime)


def _clear(runtime: Path) -> None:
    socket_folders.empty(runtime)
    with contextlib.suppress(OSError):  # others meet there, too
        os.rmdir(runtime.parent)


def _new_case(out: str | os.PathLike[str] | None) -> Path:
    if out is not None:
        case = Path(os.path.abspath(out))
        if case.is_dir() and any(os.scandir(case)):
            raise CannotRecord(f"{case} is not empty, and nothing is overwritten")
        folders.make_private(case)
        try:
            folders.claim(case)
        except FileExistsError as error:
            raise CannotRecord(f"{case} is being recorded into by another job") from error
        return case
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        case = Path.cwd() / (f"hanglab-case-{stamp}" + (f"-{number}" if number else ""))
        with contextlib.suppress(FileExistsError):
            os.mkdir(case, 0o700)
            return case
    raise CannotRecord(f"{case} and a thousand more exist")


def _start_agent(case: Path, runtime: Path, hang_after: float, lock: int) -> None:
    host = folders.host_folder(case, host_name())
    folders.make_private(host / files.TIMEOUT_DUMPS.name)
    command = [sys.executable, "-m", "hanglab.recorder.agent"]
    command += ["--case", str(case), "--runtime", str(runtime), "--hang-after", str(hang_after)]
    command += ["--alone", str(os.getppid())]
    dumps = host / files.TIMEOUT_DUMPS.name / "rank_"
    for name, value in (("--dumps", dumps), ("--pipes", runtime / "dump_")):
        command += [name, str(value)]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HANGLAB_")
    }
    # It forks and this part of it ends at once: the agent is nobody's child here.
    starter = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=case,
        env=environment,
        pass_fds=[lock],
        start_new_session=True,
    )
    try:
        if starter.wait(_AGENT_S) != 0:
            raise CannotRecord(f"the recorder's agent ended with {starter.returncode}")
    except subprocess.TimeoutExpired:
        raise _AgentLate(f"the recorder's agent did not come up in {_AGENT_S:g} s") from None
