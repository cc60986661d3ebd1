"""The part of the recorder that runs inside a rank.

It never raises into the job and never changes its results; where something
cannot be recorded, the rest is, and the Case says what is missing.
"""

from __future__ import annotations

import os
from pathlib import Path

import hanglab.recorder as _recorder

#: Set in a rank's environment to its process id, so that processes that it starts
#: and that inherit RANK are not taken for ranks.
OWNER = "HANGLAB_RANK_PID"

#: Whether this process is watched for its joining a process group.
_waiting = False


def start(
    case_dir: str | os.PathLike[str],
    *,
    rank: int,
    world_size: int | None,
    local_rank: int | None = None,
    attempt: int = 0,
) -> None:
    """Record this process as a rank, into ``case_dir``.  Starting twice does nothing.

    ``HANGLAB_RUNTIME`` names a folder with a short path for the rank's socket;
    without it the socket lies in the rank's folder of the Case.
    """
    if _recorder._active is not None:
        return
    try:
        from hanglab.recorder.rank.recorder import RankRecorder

        runtime = os.environ.get("HANGLAB_RUNTIME")
        recorder = RankRecorder(
            Path(case_dir),
            Path(runtime) if runtime else None,
            rank,
            world_size,
            local_rank,
            attempt,
        )
        recorder.start()
    except Exception as error:
        _complain(error)
        return
    os.environ[OWNER] = str(os.getpid())
    _recorder._record_with(recorder)
    os.register_at_fork(after_in_child=_forget)


def start_from_environment() -> None:
    """Record this process if ``HANGLAB_CASE`` is set, as soon as it is known to be a rank.

    That is now where ``RANK`` says so, else when it initialises torch.distributed.
    """
    from hanglab.recorder.rank.rank_recognition import attempt_of, is_rank, may_join

    environment = os.environ
    _enter_host()
    _watch_branches()
    if not is_rank(environment):
        if may_join(environment):
            _start_when_joining()
        return
    number = {
        name: int(value)
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        if (value := environment.get(name, "")).isdecimal()
    }
    start(
        environment["HANGLAB_CASE"],
        rank=number["RANK"],
        world_size=number.get("WORLD_SIZE"),
        local_rank=number.get("LOCAL_RANK"),
        attempt=attempt_of(environment),
    )


def _enter_host() -> None:
    """Before anything is written: on another host than the recording's the folders are others."""
    if not os.environ.get("HANGLAB_HOST"):
        return
    try:
        from hanglab.recorder.rank.other_host import enter_host

        enter_host(os.environ)
    except Exception as error:
        _complain(error)


def _watch_branches() -> None:
    """Before the user's first module is imported: later it would be too late."""
    if os.environ.get("HANGLAB_BRANCHES") != "1":
        return
    try:
        from hanglab.recorder.rank.branches.recording import RECORDING

        RECORDING.watch()
    except Exception as error:
        _complain(error)


def start_alone(out: str | os.PathLike[str] | None, hang_after: float | None) -> None:
    """Start without anybody having prepared it: see :func:`hanglab.recorder.start`."""
    import sys

    try:
        from hanglab.recorder.rank.self_recording import begin

        begin(out, hang_after)
    except Exception as error:
        print(f"hanglab: this process is not recorded: {error}", file=sys.stderr)
        return
    start_from_environment()


def _start_when_joining() -> None:
    global _waiting
    if _waiting:
        return
    from hanglab.recorder.rank.group_joining import JoinWatch
    from hanglab.recorder.rank.rank_recognition import attempt_of

    def joining(rank: int, world_size: int | None) -> None:
        local_rank = os.environ.get("LOCAL_RANK", "")
        # A fork of a rank inherits this watch, but is no rank.
        if os.environ.get(OWNER, str(os.getpid())) == str(os.getpid()):
            start(
                os.environ["HANGLAB_CASE"],
                rank=rank,
                world_size=world_size,
                local_rank=int(local_rank) if local_rank.isdecimal() else None,
                attempt=attempt_of(os.environ),
            )

    watch = JoinWatch(joining)
    if watch.has_joined():
        return
    watch.install()
    runtime = os.environ.get("HANGLAB_RUNTIME")
    if runtime:
        from hanglab.recorder.rank.reaped_exits import note_exits

        note_exits(Path(runtime))
    _waiting = True


def hook_dir() -> Path:
    """Folder to put first on PYTHONPATH, so that every rank starts its recorder by itself.

    It holds a ``sitecustomize`` that runs the one it hides, and nothing else.
    """
    return Path(__file__).parent / "hook"


def _forget() -> None:
    _recorder._record_with(None)


def _complain(error: Exception) -> None:
    """One line where it can be found; the job goes on unrecorded."""
    try:
        runtime = os.environ.get("HANGLAB_RUNTIME")
        if runtime:
            path = Path(runtime) / f"not-recorded-{os.getpid()}.txt"
            path.write_text(f"{type(error).__name__}: {error}\n")
    except OSError:
        return
