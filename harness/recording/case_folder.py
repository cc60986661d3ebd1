"""The folder of a Case to be recorded: one of its own, new or empty."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import tempfile
from pathlib import Path

from hanglab.harness.errors import UsageError
from hanglab.recorder.system.mount_table import space_of

#: What names of folders begin with that nobody has named.
NAME_PREFIX = "hanglab-case-"
_ADVICE = "Name a new or empty folder with --out, or leave --out out."


def check_folder(path: Path) -> None:
    """Raises UsageError if something lies there already, before anything is started."""
    if is_of_earlier_attempt(path):
        return
    try:
        if path.is_dir():
            with os.scandir(path) as entries:
                if any(True for _ in entries):
                    raise UsageError(f"{path} is not empty, and nothing is overwritten.", _ADVICE)
        elif os.path.lexists(path):
            raise UsageError(f"{path} is a file, not a folder.", _ADVICE)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", _ADVICE) from error


def is_of_earlier_attempt(path: Path) -> bool:
    """True if it is the Case of this job of Slurm's, from before Slurm began the job anew."""
    from hanglab.recorder.case import evidence_files as files
    from hanglab.recorder.case.reader import CaseReader

    job = os.environ.get("SLURM_JOB_ID")
    if not job or int(os.environ.get("SLURM_RESTART_COUNT") or 0) < 1:
        return False
    with contextlib.suppress(OSError):
        before = CaseReader(path).read(files.SCHEDULER)
        return before is not None and (before.name, before.job) == ("slurm", job)
    return False


#: Bytes that a rank's progress and what goes with it take, roughly.
_ROOM = 2 << 20


def want_of_room(case: Path) -> str:
    """A sentence where the disk below the Case is all but full, and what to do; else ""."""
    try:
        free = space_of(case).free_bytes or 0
    except OSError:
        return ""
    if free >= _ROOM:
        return ""
    return (
        f"the disk of {case} is full ({free >> 10} KiB free), so what is recorded there is not "
        "whole; make room, or name a folder on another disk with --out"
    )


def name_folder(folder: Path) -> Path:
    """A name below ``folder`` that nothing has yet."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = folder / f"{NAME_PREFIX}{stamp}"
    number = 1
    while os.path.lexists(path):
        path = folder / f"{NAME_PREFIX}{stamp}-{number}"
        number += 1
    return path


def make_folder(path: Path) -> Path:
    """Create the folder, readable by its owner only.  Raises OSError."""
    from hanglab.recorder.case import folders

    folders.make_private(path)
    os.chmod(path, 0o700)
    # A folder that exists may still be one that nobody can write into.
    with tempfile.TemporaryFile(dir=path):
        return path


def claim_folder(path: Path) -> Path:
    """The folder, for this recording alone.  Raises OSError, and UsageError if another has it."""
    from hanglab.recorder.case import folders

    if is_of_earlier_attempt(path):
        return path
    make_folder(path)
    try:
        folders.claim(path)
    except FileExistsError as error:
        raise UsageError(
            f"{path} is being recorded into already, and nothing is overwritten.", _ADVICE
        ) from error
    return path


def claim_another(folder: Path) -> Path:
    """A folder below ``folder`` with a name that nothing has yet.  Raises OSError."""
    while True:
        with contextlib.suppress(UsageError):  # somebody else was faster
            return claim_folder(name_folder(folder))


def make_some_folder(path: Path, another: bool = False) -> Path:
    """The folder, or where it cannot be had one among the temporary files.

    Raises OSError, and UsageError if another recording has it; ``another``: then take one beside.
    """
    try:
        return claim_folder(path)
    except UsageError:
        if not another:
            raise
        return claim_another(path.parent)
    except OSError as error:
        instead = claim_another(Path(tempfile.gettempdir()))
        print(
            f"hanglab: {path} cannot be written ({error.strerror}); recording into {instead}",
            file=sys.stderr,
        )
        return instead
