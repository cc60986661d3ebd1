"""The hosts of a job: from SLURM, a hostfile or the command line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hanglab.recorder.errors import HanglabError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}|\[[0-9A-Fa-f:.]+\](:\d+)?")
_SLURM_S = 10.0


class NoHosts(HanglabError, ValueError):
    """The hosts cannot be told; its text says why."""

    advice = "Name the hosts."


def from_names(names: Sequence[str]) -> list[str]:
    """Names as they are given: comma-separated, repeated, SLURM's brackets unfolded."""
    hosts: list[str] = []
    for name in names:
        for part in _split(name):
            hosts += _unfold(part)
    return _distinct(hosts)


def from_hostfile(path: Path) -> list[str]:
    """Hosts of an MPI-style file: the first word of each line, ``#`` begins a comment.

    Raises NoHosts.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise NoHosts(f"the hostfile {path} cannot be read: {error.strerror}") from None
    words = [line.partition("#")[0].split() for line in lines]
    hosts = [line[0] for line in words if line]
    if not hosts:
        raise NoHosts(f"the hostfile {path} names no host")
    return from_names(hosts)


def from_slurm(job: str) -> list[str]:
    """Hosts of a SLURM job, array tasks (``1234_7``) too, as squeue tells.  Raises NoHosts."""
    hosts = from_names(_squeue(job, "%N").split())
    if not hosts:
        raise NoHosts(f"squeue knows no hosts of job {job}; it may not have started yet")
    return hosts


def slurm_number(job: str) -> int:
    """The number by which processes of a SLURM job know it; array tasks have one each.

    Raises NoHosts.
    """
    if job.isdecimal():
        return int(job)
    number = _squeue(job, "%A").strip()
    if not number.isdecimal():
        raise NoHosts(f"squeue knows no single job {job}")
    return int(number)


def _squeue(job: str, what: str) -> str:
    try:
        done = subprocess.run(
            ["squeue", "--noheader", f"--jobs={job}", "--format", what],
            capture_output=True,
            text=True,
            timeout=_SLURM_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoHosts(f"squeue cannot be asked about job {job}: {error}") from None
    if done.returncode != 0:
        raise NoHosts(f"squeue knows no job {job}: {done.stderr.strip()[:200]}")
    return done.stdout


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text.strip()) if part]


def _unfold(name: str) -> list[str]:
    """``gpu[01-03,7]`` to its four names; an address in brackets stays as it is."""
    match = re.fullmatch(r"([^\[\]]+)\[([0-9,-]+)\](.*)", name)
    if match is None:
        if not _NAME.fullmatch(name):
            raise NoHosts(f"{name[:100]!r} is no host name")
        return [name]
    head, ranges, tail = match.groups()
    found = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise NoHosts(f"{name[:100]!r} is no list of hosts")
        if int(last or first) - int(first) > 100_000:
            raise NoHosts(f"{name[:100]!r} names too many hosts")
        for number in range(int(first), int(last or first) + 1):
            found += _unfold(f"{head}{number:0{len(first)}d}{tail}")
    return found


def _distinct(hosts: list[str]) -> list[str]:
    return list(dict.fromkeys(hosts))
