"""Whom a command asks: agents here, hosts of a SLURM job, hosts of a recorded one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hanglab.harness.errors import HanglabError
from hanglab.harness.recording.endpoints import find_endpoints
from hanglab.recorder.agent.profiles import open_endpoint
from hanglab.recorder.case.folders import host_folder
from hanglab.recorder.profiling import agent_notes, client
from hanglab.recorder.profiling.access_control import Refused
from hanglab.recorder.profiling.client import AgentRefused, Endpoint
from hanglab.recorder.profiling.service import ProfilingService, Settings
from hanglab.recorder.profiling.trace_records import ProfileRequest, Selection

PLAYED = Path(__file__).parent / "programs" / "kineto_program.py"
Answer = Callable[[str], None]


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Has a program that stands in for SLURM's squeue name these nodes of job 1234_7."""
    program = tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def answer(names: str) -> None:
        program.write_text(f'#!/bin/sh\n[ "$2" = --jobs=1234_7 ] && echo "{names}"\n')
        program.chmod(0o755)

    return answer


def found(job: str = "1234_7") -> list[tuple[str, int]]:
    return [
        (endpoint.host, endpoint.port)
        for endpoint in find_endpoints(None, [], None, job, None, None)
    ]


def test_hosts_of_a_slurm_job_are_asked(nodes: Answer) -> None:
    nodes("gpu[01-02]")
    assert found() == [("gpu01", 1778), ("gpu02", 1778)]
    with pytest.raises(HanglabError, match="squeue knows no job 99"):
        found("99")


def test_agent_here_is_asked_for_this_host_of_the_job_and_no_other(nodes: Answer) -> None:
    own = socket.gethostname()
    agent_notes.leave(agent_notes.own(4711, ["127.0.0.1"]))
    nodes(f"{own},gpu02")
    assert found() == [("127.0.0.1", 4711), ("gpu02", 1778)]
    nodes("gpu01,gpu02")
    assert found() == [("gpu01", 1778), ("gpu02", 1778)]
    # An agent may know a job that SLURM does not.
    assert found("99") == found("a run id of torchrun's") == [("127.0.0.1", 4711)]


def test_agent_that_listens_on_one_address_only_is_found_there(nodes: Answer) -> None:
    for addresses, local in (
        (["10.0.0.7"], "10.0.0.7"),
        (["10.0.0.7", "127.0.0.1"], "127.0.0.1"),
        (["0.0.0.0"], "127.0.0.1"),
        (["::"], "::1"),
    ):
        agent_notes.leave(agent_notes.own(4711, addresses))
        assert found("") == [(local, 4711)]


def test_process_of_a_slurm_array_is_meant_by_its_task_and_by_the_array(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    slurm = {"SLURM_JOB_ID": "1241", "SLURM_ARRAY_JOB_ID": "1234", "SLURM_ARRAY_TASK_ID": "7"}
    process = subprocess.Popen(
        [sys.executable, str(PLAYED), str(sockets), "77"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **slurm, "RANK": "0"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        for job in ("1234_7", "1234", "1241"):
            order, receipts = client.place(endpoint, ProfileRequest(Selection(job=job)))
            assert [receipt.rank for receipt in receipts] == [0]
            client.cancel(endpoint, order)
        with pytest.raises(AgentRefused, match="is job 1234_8"):
            client.place(endpoint, ProfileRequest(Selection(job="1234_8")))
    finally:
        process.kill()
        process.communicate()


def test_recorded_job_can_be_reached_from_other_hosts(
    sockets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(sockets / "traces", "here", sockets, token="of this run, " * 3)
    assert open_endpoint(settings) == settings
    monkeypatch.setenv("HANGLAB_LISTEN", "0.0.0.0")
    with pytest.raises(Refused, match="HANGLAB_TOKEN_FILE"):
        open_endpoint(settings)
    token = tmp_path / "token"
    monkeypatch.setenv("HANGLAB_TOKEN_FILE", str(token))
    token.write_text("short")
    with pytest.raises(Refused, match="less than 16"):
        open_endpoint(settings)
    token.write_text("shared by all hosts\n")
    opened = open_endpoint(settings)
    assert (opened.addresses, opened.port) == (("0.0.0.0",), 1778)
    assert opened.token == "shared by all hosts"

    # Whoever looks at the Case from elsewhere asks the hosts that it names.
    case = tmp_path / "case"
    for host in ("n1", "n2", socket.gethostname()):
        host_folder(case, host).mkdir(parents=True)
    endpoints = find_endpoints(case, [], None, "", token, None)
    assert [(endpoint.host, endpoint.port, endpoint.token) for endpoint in endpoints] == [
        ("n1", 1778, opened.token),
        ("n2", 1778, opened.token),
    ]
