"""Addresses of agents that take traces: on this host, or on those that are named."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from hanglab.harness.errors import HanglabError, UsageError
from hanglab.recorder.case import folders
from hanglab.recorder.profiling import agent_notes, client, wire
from hanglab.recorder.profiling.access_control import MIN_TOKEN, client_tls
from hanglab.recorder.profiling.agent_notes import Note
from hanglab.recorder.profiling.client import Endpoint
from hanglab.recorder.profiling.hosts import NoHosts, from_hostfile, from_names, from_slurm
from hanglab.recorder.system.host_name import host_name

#: SLURM's jobs, array tasks (1234_7) and parts of one job (1234+1).
_SLURM_JOB = re.compile(r"\d+([_+]\d+)?")


def read_token(file: Path | None) -> str | None:
    """The shared token; None without a file.  Raises UsageError."""
    if file is None:
        return None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {file} cannot be read: {error}.") from None
    if len(token) < MIN_TOKEN:
        raise UsageError(
            f"The token in {file} has {len(token)} characters; that can be guessed.",
            "Make one: python -c 'import secrets; print(secrets.token_hex())'",
        )
    return token


def find_endpoints(
    case: Path | None,
    hosts: list[str],
    hostfile: Path | None,
    job: str,
    token_file: Path | None,
    tls_ca: Path | None,
) -> list[Endpoint]:
    try:
        names = from_names(hosts) + (from_hostfile(hostfile) if hostfile else [])
    except NoHosts as error:
        raise HanglabError(f"No hosts: {error}.", "Name them with --host or --hostfile.") from None
    found = agent_notes.read_all()
    here: list[Note] = []
    if case is not None:
        wanted = os.path.realpath(case)
        found = [note for note in found if note.case and os.path.realpath(note.case) == wanted]
        if token_file is not None and not names:
            # Agents beside the job on its other hosts are behind a token, if they can be reached.
            names, here = _case_hosts(case), found
    elif not names and _SLURM_JOB.fullmatch(job):
        names, here = _job_hosts(job, found)
    if names or here:
        token = read_token(token_file)
        try:
            tls = client_tls(tls_ca) if tls_ca is not None else None
        except OSError as error:
            raise HanglabError(f"{tls_ca} cannot be used: {error}.", "It must be PEM.") from None
        endpoints = [Endpoint(*_address(name, wire.PORT), token, tls) for name in names]
        return [_endpoint(note) for note in here] + endpoints
    if not found:
        raise HanglabError(
            f"No agent is recording into {case}." if case else "No agent runs on this host.",
            "Start the job under `hanglab record`, or `hanglab agent` and the job with "
            "KINETO_USE_DAEMON=1 in its environment; --host names agents elsewhere.",
        )
    return [_endpoint(note) for note in found]


def _case_hosts(case: Path) -> list[str]:
    """The hosts that a job is recorded on, beside this one."""
    own = folders.host_folder(case, host_name())
    try:
        return sorted(path.name for path in own.parent.iterdir() if path.is_dir() and path != own)
    except OSError:
        return []


def _job_hosts(job: str, found: list[Note]) -> tuple[list[str], list[Note]]:
    """Other hosts of a SLURM job, and agents here if it runs here, too.

    Where SLURM tells nothing, agents here may know the job.
    """
    try:
        names = from_slurm(job)
    except NoHosts as error:
        if found:
            return [], found
        raise HanglabError(f"No hosts: {error}.", "Name them with --host or --hostfile.") from None
    own = host_name().partition(".")[0]
    others = [name for name in names if name.partition(".")[0] != own]
    return (others, found) if found and len(others) < len(names) else (names, [])


def _endpoint(note: Note) -> Endpoint:
    tls = client_tls(Path(note.authority)) if note.authority else None
    return Endpoint(note.address, note.port, note.token, tls)


def _address(name: str, port: int) -> tuple[str, int]:
    """``name``, ``name:port``, ``[v6]:port``."""
    if name.startswith("["):
        inside, _, after = name[1:].partition("]")
        return inside, int(after[1:]) if after[1:].isdecimal() else port
    head, colon, tail = name.rpartition(":")
    if colon and tail.isdecimal() and ":" not in head:
        return head, int(tail)
    return name, port


def tell_apart(endpoints: Sequence[Endpoint]) -> tuple[list[Endpoint], list[Endpoint]]:
    """Endpoints of hanglab's agents, and those of dynolog daemons."""
    own: list[Endpoint] = []
    dynologs: list[Endpoint] = []
    for endpoint in endpoints:
        try:
            (dynologs if client.is_dynolog(endpoint) else own).append(endpoint)
        except (client.AgentUnreachable, client.AgentRefused):
            # Its receipt will say what is wrong with it.
            own.append(endpoint)
    return own, dynologs
