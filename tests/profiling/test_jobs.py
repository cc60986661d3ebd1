"""Real torch jobs, profiled by a real agent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conditions import wait_for
from installed import needs_torch

from hanglab.analyzer.facts.trace_stacks import stack_of_trace
from hanglab.recorder.profiling import client, multi_host_request
from hanglab.recorder.profiling.client import Endpoint
from hanglab.recorder.profiling.configuration import Detail, TraceWindow
from hanglab.recorder.profiling.fabric_socket import PATIENCE_S
from hanglab.recorder.profiling.service import ProfilingService
from hanglab.recorder.profiling.trace_records import ProfileRequest, Receipt, Selection

pytestmark = needs_torch

PROGRAM = Path(__file__).parent / "programs" / "training_program.py"


@contextlib.contextmanager
def job(
    folder: Path,
    *arguments: str,
    ranks: int = 2,
    before: tuple[str, ...] = (),
    verbose: bool = False,
    under_torchrun: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A job whose processes look for the agent in the folder, once a second.

    Gives torchrun, or the first rank where nobody stands above the ranks: that imports torch
    once less.  ``before``: words in front of its command.  ``verbose``: Kineto tells all it does.
    """
    config = folder / "kineto.conf"
    config.write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    environment = {
        **os.environ,
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(folder),
        "KINETO_CONFIG": str(config),
        "KINETO_ONDEMAND_TRACE_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    if verbose:
        environment["KINETO_LOG_LEVEL"] = "0"
    program = [str(PROGRAM), *arguments]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    places: list[dict[str, str]] = [{}]
    if not under_torchrun:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        places = [
            {"RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": str(ranks), **address}
            for n in range(ranks)
        ]
    words = [*before, sys.executable, *(torchrun if under_torchrun else []), *program]
    with (folder / "log").open("wb") as log:
        processes = [
            subprocess.Popen(
                words, env={**environment, **place}, stdout=log, stderr=log, start_new_session=True
            )
            for place in places
        ]
    try:
        yield processes[0]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # torchrun's ranks lead sessions of their own.
        for found in _below(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(found, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _below(folder: Path) -> list[int]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{name}/environ").read_bytes()
            if f"KINETO_CONFIG={folder}/".encode() in text:
                found.append(int(name))
    return found


def registered(endpoint: Endpoint, folder: Path, ranks: int = 2) -> None:
    """Until all ranks train and have been heard often enough to know their period."""

    def ready() -> bool:
        if (folder / "log").read_text().count(" trains") < ranks:
            return False
        found = [p for p in client.status(endpoint).processes if p.is_rank]
        return len(found) == ranks and all(p.period_s < 2.5 for p in found)

    wait_for(ready, "registration")


def profile(endpoint: Endpoint, asked: ProfileRequest) -> list[Receipt]:
    parts = multi_host_request.place(multi_host_request.RequestPlan([endpoint], asked))
    multi_host_request.follow(parts, lambda parts: None)
    assert [part.problem for part in parts] == [""]
    return sorted(parts[0].receipts, key=lambda receipt: receipt.rank or 0)


def steps_in(receipt: Receipt) -> list[int]:
    """The iterations in a trace, by the marks that the program makes."""
    names = [e.get("name", "") for e in json.loads(Path(receipt.path).read_text())["traceEvents"]]
    return sorted({int(name.removeprefix("step ")) for name in names if name.startswith("step ")})


@pytest.mark.slow
def test_ranks_of_a_running_job_are_traced_together(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with job(sockets, "900", under_torchrun=True) as launcher:
        registered(endpoint, sockets)
        found = client.status(endpoint).processes
        assert sorted(p.rank for p in found if p.is_rank) == [0, 1]
        assert launcher.pid in [p.pid for p in found if not p.is_rank], "torchrun registers, too"

        by_time = profile(endpoint, ProfileRequest(window=TraceWindow(duration_ms=300)))
        assert [(r.rank, r.state, r.reason) for r in by_time] == [
            (0, "valid", ""),
            (1, "valid", ""),
        ]
        starts = [r.first_ms for r in by_time if r.first_ms is not None]
        # The job's own steps are a few milliseconds apart.
        assert max(starts) - min(starts) < 100
        for receipt in by_time:
            document = json.loads(Path(receipt.path).read_text())
            assert document["distributedInfo"]["rank"] == receipt.rank
            assert document["distributedInfo"]["world_size"] == 2
            assert any("all_reduce" in e.get("name", "") for e in document["traceEvents"])
            assert f"rank{receipt.rank}.here" in receipt.file

        detail = Detail(shapes=True, stacks=True, flops=True, modules=True)
        # Multiples so far apart that nobody passes one while the ranks hear of it, one after
        # the other.
        ahead = max(step for receipt in by_time for step in steps_in(receipt)) + 600
        together = TraceWindow(iterations=3, roundup=ahead)
        iterations = profile(
            endpoint, ProfileRequest(window=together, detail=detail, patience_s=60.0)
        )
        assert [r.state for r in iterations] == ["valid", "valid"]
        # Both ranks begin at the same one.
        first, second = (steps_in(receipt) for receipt in iterations)
        assert first[:3] == second[:3]
        # Before Kineto ends a trace, the mark of the next one may have begun; on a busy machine
        # it ends one rank's several iterations late.
        assert 3 <= min(len(first), len(second)) <= 4

        later = first[0] + 500
        awaited = profile(
            endpoint, ProfileRequest(window=TraceWindow(iterations=2, at_iteration=later))
        )
        assert [(r.state, r.reason) for r in awaited] == [("valid", "")] * 2
        # Kineto counts from 1, and one iteration more passes before it begins.
        assert [steps_in(receipt)[:2] for receipt in awaited] == [[later + 1, later + 2]] * 2
        assert min(len(steps_in(receipt)) for receipt in awaited) <= 3

        # Again so far ahead that no rank passes it before all have heard.
        again = TraceWindow(iterations=2, at_iteration=first[0], roundup=later + 1000)
        passed = profile(endpoint, ProfileRequest(window=again, patience_s=60.0))
        assert [(r.state, r.reason) for r in passed] == [("valid", "")] * 2
        begun = [steps_in(receipt)[:2] for receipt in passed]
        assert begun[0] == begun[1] != [first[0] + 1, first[0] + 2]

        one = profile(endpoint, ProfileRequest(Selection(ranks=[1]), TraceWindow(duration_ms=50)))
        assert [(r.rank, r.state) for r in one] == [(1, "valid")]
        by_pid = profile(
            endpoint, ProfileRequest(Selection(pids=[launcher.pid]), TraceWindow(duration_ms=50))
        )
        assert [r.rank for r in by_pid] == [0, 1], "the launcher stands for its ranks"

        with pytest.raises(multi_host_request.TooEarly, match="earliest common start"):
            multi_host_request.place(
                multi_host_request.RequestPlan([endpoint], ProfileRequest(), start_in_s=0.5)
            )


@pytest.mark.long
def test_requests_that_follow_each_other_all_give_traces(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # Kineto has room for one, begins by time two of its turns later, and says meanwhile that it
    # is idle.
    one = Selection(ranks=[0])
    with job(sockets, "900"):
        registered(endpoint, sockets)
        windows = [
            TraceWindow(iterations=3),
            TraceWindow(iterations=3),
            TraceWindow(500),
            TraceWindow(50),
            TraceWindow(500),
        ]
        receipts = [profile(endpoint, ProfileRequest(one, window))[0] for window in windows]
        assert [(r.state, r.reason) for r in receipts] == [("valid", "")] * len(windows)

        # All at once, by several people; the last is of both ranks with one start.
        together = [
            ProfileRequest(one, windows[0]),
            ProfileRequest(one, windows[0]),
            ProfileRequest(one, windows[2]),
            ProfileRequest(),
        ]
        with ThreadPoolExecutor(len(together)) as pool:
            found = list(pool.map(lambda asked: profile(endpoint, asked), together))
        assert [[(r.state, r.reason) for r in receipts] for receipts in found] == [
            [("valid", "")],
            [("valid", "")],
            [("valid", "")],
            [("valid", ""), ("valid", "")],
        ]
        assert len({steps_in(receipts[0])[0] for receipts in found}) == len(found)


@pytest.mark.long
def test_answer_that_was_late_makes_no_later_one_late(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with job(sockets, "900", verbose=True):
        registered(endpoint, sockets)
        # All processes ask meanwhile, and give up on it.
        with service.requests.lock:
            ranks = service.registry.ranks().values()
            asked = max(one.last_seen + one.period_s for one in ranks) + 2 * PATIENCE_S
            wait_for(lambda: time.monotonic() > asked, "questions")
        order, _ = client.place(endpoint, ProfileRequest(Selection(ranks=[0]), TraceWindow(60_000)))
        wait_for(lambda: client.receipts(endpoint, order)[0].state == "delivered", "delivery")
        # Kineto says at once what it has read, and not when it asks again.
        rank = next(c for c in service.registry.ranks().values() if c.identity.rank == 0)
        heard = rank.last_seen
        wait_for(
            lambda: "Received config from dyno" in (sockets / "log").read_text(),
            "reading",
        )
        assert rank.last_seen == heard


def test_hung_job_is_traced_by_time_and_refuses_iterations(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with job(sockets, "900", "hang"):
        registered(endpoint, sockets)
        ranks = [p.pid for p in client.status(endpoint).processes if p.is_rank]
        wait_for(lambda: all(_sleeps(pid) for pid in ranks), "the hang")
        refused = profile(endpoint, ProfileRequest(window=TraceWindow(iterations=3)))
        assert [r.state for r in refused] == ["failed", "failed"]
        assert all("makes no iterations" in r.reason for r in refused)
        # Had they been delivered, they would block this one.
        traced = profile(endpoint, ProfileRequest(window=TraceWindow(duration_ms=200)))
        assert [(r.state, r.reason) for r in traced] == [("valid", ""), ("valid", "")]
        # Stacks belong to the trace of a process that stands still.
        assert "wait_for_disk" in Path(traced[1].path).read_text()
        assert "all_reduce" in Path(traced[0].path).read_text()
        # That is evidence of where the rank stands, for the analyzer, too.
        process = traced[1].pid
        stack = stack_of_trace(Path(traced[1].path).read_bytes(), process, None, [])
        assert stack is not None
        here = next(f for f in stack.threads[0].frames if f.function == "wait_for_disk")
        assert PROGRAM.read_text().splitlines()[here.line - 1].strip() == "threading.Event().wait()"


def _sleeps(pid: int) -> bool:
    from hanglab.recorder.profiling.iteration_pace import by_stack

    return "stood at" in by_stack(pid)


@pytest.mark.long
def test_users_own_profiler_gets_in_the_way_and_is_named(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with job(sockets, "900", "own"):
        registered(endpoint, sockets)
        receipts = profile(
            endpoint, ProfileRequest(window=TraceWindow(duration_ms=100), patience_s=15)
        )
        assert [r.state for r in receipts] == ["failed", "failed"]
        assert all("torch.profiler" in r.reason for r in receipts), receipts


@pytest.mark.slow
def test_process_that_ends_before_its_trace_is_told(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    leave = sockets / "leave"
    with job(sockets, "900", "leave", str(leave)):
        registered(endpoint, sockets)
        order, _ = client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=60_000)))
        wait_for(
            lambda: any(r.state == "active" for r in client.receipts(endpoint, order)),
            "delivery",
        )
        leave.touch()
        wait_for(lambda: all(r.final for r in client.receipts(endpoint, order)), "the end")
        for receipt in client.receipts(endpoint, order):
            assert receipt.state == "failed"
            assert "ended before its trace was written" in receipt.reason


@pytest.mark.long
def test_restarted_agent_finds_the_job_again(sockets: Path) -> None:
    from hanglab.recorder.profiling.service import Settings

    settings = Settings(root=sockets / "traces", host="here", socket_folder=sockets)
    service = ProfilingService(settings)
    with job(sockets, "900"):
        try:
            registered(Endpoint("127.0.0.1", service.port), sockets)
        finally:
            service.close()
        service = ProfilingService(settings)
        try:
            endpoint = Endpoint("127.0.0.1", service.port)
            registered(endpoint, sockets)
            receipts = profile(endpoint, ProfileRequest(window=TraceWindow(duration_ms=50)))
            assert [(r.state, r.reason) for r in receipts] == [("valid", "")] * 2
        finally:
            service.close()
