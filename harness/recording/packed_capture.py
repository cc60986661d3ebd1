"""A capture whose Case goes to standard output, packed: for whoever runs it from elsewhere."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from hanglab.harness.errors import UsageError
from hanglab.harness.kubernetes.names import CASE, WATCHED
from hanglab.harness.recording import running_jobs
from hanglab.recorder.archive.packing import pack
from hanglab.recorder.attach.tree import FoundRank
from hanglab.recorder.case.folders import HOSTS

#: Begins the line that says when the archive was sent.
MARK: Final = b"hanglab-packed: "


class PackedNote(msgspec.Struct):
    """Said on standard error before the archive: this machine's clock, to compare others with."""

    wall_ns: int


def of_pod(jobs: Sequence[Sequence[FoundRank]], pod: str) -> list[list[FoundRank]]:
    """The ranks of one Kubernetes pod, told by its control groups, which have its number."""
    names = (pod, pod.replace("-", "_"))
    kept = [[rank for rank in job if _in_group(rank.pid, names)] for job in jobs]
    return [job for job in kept if job]


def capture_packed(jobs: Sequence[list[FoundRank]], watch_s: float, out: BinaryIO) -> None:
    """Captures one job and writes its Case; the largest where there are several.

    Raises OSError, and UsageError for a terminal.
    """
    if out.isatty():
        raise UsageError("The archive would go to a terminal.", "Send it into a file.")
    with tempfile.TemporaryDirectory(prefix="hanglab-") as name:
        folder = Path(name)
        if jobs:
            case = _capture(max(jobs, key=len), folder / "case", watch_s)
        else:
            # Of a job whose ranks are gone, what was recorded while there were some.
            case = left_case() or Path(CASE)
        archive = folder / "case.tar.gz"
        pack(case, archive)
        note = msgspec.json.encode(PackedNote(time.time_ns()))
        sys.stderr.buffer.write(MARK + note + b"\n")
        sys.stderr.flush()
        with archive.open("rb") as file:
            shutil.copyfileobj(file, out, 1 << 16)
        out.flush()


def left_case() -> Path | None:
    """The latest Case where pods of `hanglab manifest` have theirs; None without any."""
    found = [Path(CASE), *Path(WATCHED).glob("*")]
    cases = [case for case in found if (case / HOSTS).is_dir()]
    return max(cases, key=lambda case: case.stat().st_mtime, default=None)


def _capture(ranks: list[FoundRank], case: Path, watch_s: float) -> Path:
    own = running_jobs.recorded_case(ranks)
    if own is not None:
        return running_jobs.capture_recorded(own, ranks, watch_s, lambda rested_s, limit_s: None)
    case.mkdir(mode=0o700)
    return running_jobs.capture_unrecorded(case, ranks, watch_s)


def _in_group(pid: int, names: Sequence[str]) -> bool:
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
    return any(name in groups for name in names)
