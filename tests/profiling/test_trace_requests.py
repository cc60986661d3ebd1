"""Orders against a played process: what is delivered, when, and what the receipt says.

The process ids are those of this test's own process: it has no rank, so it is
profiled as a plain process.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conditions import wait_for
from played_kineto import Played, played, write_trace

from hanglab.recorder.profiling import client, wire
from hanglab.recorder.profiling.client import AgentRefused, Endpoint
from hanglab.recorder.profiling.configuration import TraceWindow, trace_path, values_of
from hanglab.recorder.profiling.service import ProfilingService
from hanglab.recorder.profiling.trace_records import ProfileRequest, Receipt, Selection


def work_until(done: Callable[[], bool]) -> None:
    """Be at one place, then at another, in turns that are short beside two looks."""
    while not done():
        began = time.monotonic()
        while time.monotonic() - began < 0.02:
            math.factorial(500)
        while time.monotonic() - began < 0.04:
            math.comb(500, 250)


def final(endpoint: Endpoint, order: str) -> Receipt:
    wait_for(lambda: client.receipts(endpoint, order)[0].final)
    return client.receipts(endpoint, order)[0]


def introduce(process: Played, endpoint: Endpoint) -> None:
    """Its first question, asked once: from a second one a shorter period would be learnt."""
    process.send()
    wait_for(lambda: bool(client.status(endpoint).processes))
    process.socket.settimeout(0.3)
    with contextlib.suppress(TimeoutError):
        process.socket.recv(4096)


def test_request_is_delivered_once_and_its_file_is_the_receipt(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with played(sockets, os.getpid()) as (process,):
        assert process.ask() == ""
        order, receipts = client.place(
            endpoint, ProfileRequest(window=TraceWindow(duration_ms=100))
        )
        assert receipts[0].state == "queued"
        text = process.ask()
        assert values_of(text)["ACTIVITIES_DURATION_MSECS"] == "100"
        assert process.ask(idle=False) == ""
        assert client.receipts(endpoint, order)[0].state == "active"
        write_trace(text, os.getpid())
        receipt = final(endpoint, order)
        assert (receipt.state, receipt.events) == ("valid", 1), receipt.reason
        assert Path(receipt.path).is_file()
        assert process.ask() == ""


def test_file_that_is_not_what_was_asked_for_is_no_success(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        order, _ = client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=100)))
        text = process.ask()
        long_ago = f"{text}PROFILE_START_TIME={int(time.time() * 1e3) - 60_000}\n"
        write_trace(long_ago, os.getpid())
        receipt = final(endpoint, order)
    assert receipt.state == "failed"
    assert "before the requested window" in receipt.reason


def test_answers_come_from_the_socket_that_was_asked(
    service: ProfilingService, sockets: Path
) -> None:
    # One from elsewhere aborts the training process.
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        assert process.answered_by == os.fspath(sockets / "dynolog")


def test_nothing_is_delivered_while_a_trace_runs(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # Kineto can drop a request that comes in the middle of a trace.
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        order, _ = client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=100)))
        assert process.ask(idle=False) == ""
        assert client.receipts(endpoint, order)[0].state == "queued"
        assert process.ask(idle=True) != ""
        assert client.receipts(endpoint, order)[0].state == "delivered"


def test_start_that_is_too_close_is_refused_with_the_earliest(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # Kineto refuses it in its job's stderr only.
    with played(sockets, os.getpid()) as (process,):
        introduce(process, endpoint)
        soon = TraceWindow(start_ms=int((time.time() + 2.0) * 1e3))
        with pytest.raises(AgentRefused, match=r"can begin in 6\.\d s at the earliest"):
            client.place(endpoint, ProfileRequest(window=soon))
        assert process.ask() == ""
        later = TraceWindow(start_ms=int((time.time() + 90.0) * 1e3))
        client.place(endpoint, ProfileRequest(window=later))
        assert values_of(process.ask())["PROFILE_START_TIME"] == str(later.start_ms)


def test_dropped_request_is_told_and_its_remains_removed(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # What a user's own torch.profiler does to a request: an empty .tmp, and no word.
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        order, _ = client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=1)))
        file = Path(values_of(process.ask())["ACTIVITIES_LOG_FILE"])
        own = file.name.replace(".pt", f"_{os.getpid()}.pt") + ".tmp"
        (file.parent / own).touch()

        def told() -> bool:
            process.ask()
            return client.receipts(endpoint, order)[0].final

        wait_for(told)
        receipt = client.receipts(endpoint, order)[0]
        assert receipt.state == "failed"
        assert "torch.profiler" in receipt.reason
        assert not (file.parent / own).exists()


def test_second_request_waits_behind_no_iteration_that_never_comes(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # Kineto has no cancel: what waits for an iteration blocks whatever comes later.
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        with ThreadPoolExecutor(1) as pool:
            placed = pool.submit(
                client.place, endpoint, ProfileRequest(window=TraceWindow(iterations=3))
            )
            # This process must be seen to work: of one that stands still none are asked.
            work_until(placed.done)
        assert "ACTIVITIES_ITERATIONS" in process.ask()
        _, receipts = client.place(endpoint, ProfileRequest())
        assert receipts[0].state == "failed"
        assert "blocks every later one" in receipts[0].reason
        assert process.ask() == ""


def test_request_waits_for_the_end_of_the_one_before(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # Kineto says that it is idle until the first begins, and would drop the second.
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        first, _ = client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=1)))
        text = process.ask()
        second, receipts = client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=2)))
        assert receipts[0].state == "queued"
        assert [process.ask(), process.ask(idle=False), process.ask()] == ["", "", ""]
        write_trace(text, os.getpid())
        assert final(endpoint, first).state == "valid"
        assert values_of(process.ask())["ACTIVITIES_DURATION_MSECS"] == "2"
        assert client.receipts(endpoint, second)[0].state == "delivered"


def test_request_waits_for_the_end_of_a_dynolog_request(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    (sockets / "traces").mkdir()
    config = f"ACTIVITIES_LOG_FILE={sockets}/traces/a.json\n"
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        client.request_dynolog(endpoint, config, 0, [], 1)
        assert process.ask() != ""
        assert client.request_dynolog(endpoint, config, 0, [], 1).activity_profilers_busy == 1
        client.place(endpoint, ProfileRequest())
        assert [process.ask(), process.ask(idle=False)] == ["", ""]
        assert "ACTIVITIES_DURATION_MSECS" in process.ask()


def test_start_behind_another_request_is_put_off(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with played(sockets, os.getpid()) as (process,):
        introduce(process, endpoint)
        client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=3000)))
        (found,) = client.status(endpoint).processes
        # 2 s until Kineto begins by itself, the trace, the turn in which it is written, and as
        # long as it may be until the process asks for it.
        assert 11.0 < found.free_in_s < 12.0
        soon = TraceWindow(start_ms=int((time.time() + 12.0) * 1e3))
        with pytest.raises(AgentRefused, match=r"can begin in 1[78]\.\d s at the earliest"):
            client.place(endpoint, ProfileRequest(window=soon))


def test_few_requests_wait_for_one_process(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        states = [client.place(endpoint, ProfileRequest())[1][0].state for _ in range(9)]
        assert states == ["queued"] * 8 + ["failed"]


def test_trace_that_is_still_at_work_is_not_called_dropped(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # 2 s until it begins, and a large one takes long to write: its .tmp stands there meanwhile.
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        order, _ = client.place(
            endpoint, ProfileRequest(window=TraceWindow(duration_ms=500), patience_s=100.0)
        )
        text = process.ask()
        file = Path(trace_path(values_of(text)["ACTIVITIES_LOG_FILE"], os.getpid()))
        temporary = file.with_name(file.name + ".tmp")
        temporary.touch()
        begun = time.monotonic()
        while time.monotonic() - begun < 2.2:
            process.ask(idle=True)
            time.sleep(0.1)
        process.ask(idle=False)
        while time.monotonic() - begun < 6.0:
            process.ask(idle=False)
            time.sleep(0.1)
        assert client.receipts(endpoint, order)[0].state == "active"
        assert temporary.exists()
        in_window = f"{text}PROFILE_START_TIME={int((time.time() - 4.0) * 1e3)}\n"
        write_trace(in_window, os.getpid())
        assert final(endpoint, order).state == "valid"


def test_request_that_nobody_waits_for_any_more_is_not_answered(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # Kineto would take the answer for that to its next request, and all that follow as well.
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        client.place(endpoint, ProfileRequest())
        with service.requests.lock:
            process.send()
            time.sleep(0.2)
        process.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            process.socket.recv(4096)
        assert process.ask() != ""


def test_first_request_by_iterations_is_held_back_a_moment(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # So that the turns in which Kineto writes come a moment after those in which it asks.
    with played(sockets, os.getpid()) as (process,), ThreadPoolExecutor(1) as pool:
        process.ask()
        times = []
        for _ in range(2):
            placed = pool.submit(
                client.place, endpoint, ProfileRequest(window=TraceWindow(iterations=3))
            )
            work_until(placed.done)
            begun = time.monotonic()
            text = process.ask()
            times.append(time.monotonic() - begun)
            write_trace(text, os.getpid())
            assert final(endpoint, placed.result()[0]).state == "valid"
        assert times[0] >= 0.06


def test_withdrawn_request_is_not_delivered(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        order, _ = client.place(endpoint, ProfileRequest())
        assert client.cancel(endpoint, order) == 1
        assert process.ask() == ""
        assert "cancelled" in client.receipts(endpoint, order)[0].reason


def test_nobody_registered_says_what_is_needed(
    service: ProfilingService, endpoint: Endpoint
) -> None:
    with pytest.raises(AgentRefused, match="KINETO_USE_DAEMON"):
        client.place(endpoint, ProfileRequest())


def test_selection_that_fits_nobody_says_who_is_there(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with played(sockets, os.getpid(), job_id=77) as (process,):
        process.ask()
        with pytest.raises(AgentRefused, match="job 5; registered are 1 processes") as refused:
            client.place(endpoint, ProfileRequest(Selection(job="5")))
        assert "'77'" in str(refused.value)
        _, receipts = client.place(endpoint, ProfileRequest(Selection(job="77")))
        assert len(receipts) == 1


def test_folder_that_cannot_be_made_fails_that_process_only(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    (sockets / "traces").write_text("in the way")
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        _, receipts = client.place(endpoint, ProfileRequest())
        assert receipts[0].state == "failed"
        assert "could not be written" in receipts[0].reason
        assert process.ask() == ""


@pytest.fixture
def open_to_all(sockets: Path) -> Iterator[None]:
    """The folder of sockets as others have it in ``/tmp``: that of a run of tests is its own."""
    mode = sockets.parent.stat().st_mode
    sockets.parent.chmod(mode | 0o011)
    sockets.chmod(0o777)
    try:
        yield
    finally:
        sockets.parent.chmod(mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has jobs of other users: run as root")
@pytest.mark.usefixtures("open_to_all")
def test_job_of_another_user_can_write_its_trace(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # Kineto says on the job's stderr only that it cannot.
    job = os.fork()
    if not job:
        try:
            os.setuid(65534)
            with played(sockets, os.getpid()) as (process,):
                while not (text := process.ask()):
                    time.sleep(0.05)
                write_trace(text, os.getpid())
        finally:
            os._exit(0)
    try:
        wait_for(lambda: bool(client.status(endpoint).processes))
        order, _ = client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=1)))
        receipt = final(endpoint, order)
        assert (receipt.state, receipt.reason) == ("valid", "")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(job, signal.SIGKILL)
        os.waitpid(job, 0)


def test_dynolog_request_is_answered_as_dynolog_does(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    (sockets / "traces").mkdir()
    file = sockets / "traces" / "a.json"
    config = f"ACTIVITIES_LOG_FILE={file}\nPROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=500"
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        assert client.ask(endpoint, {"fn": "getStatus"}) == {"status": 1}
        message = {"fn": "setKinetOnDemandRequest", "config": config, "job_id": 0}
        answer = client.ask(endpoint, {**message, "pids": [0], "process_limit": 3})
        assert answer == {
            "processesMatched": [os.getpid()],
            "activityProfilersTriggered": [os.getpid()],
            "eventProfilersTriggered": [],
            "activityProfilersBusy": 0,
            "eventProfilersBusy": 0,
        }
        assert values_of(process.ask()) == values_of(config)
        assert client.request_dynolog(endpoint, config, 9, [], 3).processes_matched == []


def test_dynolog_request_that_kineto_would_lose_is_refused(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    (sockets / "traces").mkdir()
    file = f"ACTIVITIES_LOG_FILE={sockets}/traces/a.json\n"
    with played(sockets, os.getpid()) as (process,):
        introduce(process, endpoint)
        # 5 s between two looks, 1 s and the default warm-up of 5 s.
        soon = f"{file}PROFILE_START_TIME={int(time.time() * 1e3) + 9000}\n"
        message = {"fn": "setKinetOnDemandRequest", "config": soon, "job_id": 0, "pids": []}
        with pytest.raises(AgentRefused, match=r"can begin in 11\.\d s at the earliest"):
            client.ask(endpoint, message)
        assert process.ask() == ""


def test_dynolog_request_for_iterations_is_kept_from_a_process_that_makes_none(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    (sockets / "traces").mkdir()
    program = Path(__file__).parent / "programs" / "kineto_program.py"
    stands = subprocess.Popen(
        [sys.executable, str(program), str(sockets), "77", "stand"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert stands.stdout is not None
        assert stands.stdout.readline() == "up\n"
        config = f"ACTIVITIES_LOG_FILE={sockets}/traces/a.json\nACTIVITIES_ITERATIONS=3\n"
        message = {"fn": "setKinetOnDemandRequest", "config": config, "job_id": 0, "pids": []}
        answer = client.ask(endpoint, message, 30.0)
    finally:
        stands.kill()
        stands.communicate()
    assert answer["processesMatched"] == [77]
    assert answer["activityProfilersTriggered"] == []
    assert "makes no iterations" in answer["refused"]["77"]


def test_refusal_has_what_dyno_looks_for(service: ProfilingService, endpoint: Endpoint) -> None:
    # It ends in a panic over an answer without a list of processes.
    with socket.create_connection((endpoint.host, endpoint.port), 5) as connection:
        message = {"fn": "setKinetOnDemandRequest", "config": "PROFILE_MEMORY=true", "pids": [0]}
        answer = wire.exchange(connection, message, 5.0)
    assert answer["processesMatched"] == []
    assert "memory profiling" in answer["error"]


def test_dynolog_request_leaves_the_launcher_out(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    (sockets / "traces").mkdir()
    program = Path(__file__).parent / "programs" / "kineto_program.py"
    with played(sockets, os.getpid()) as (launcher,):
        launcher.ask()
        rank = subprocess.Popen(
            [sys.executable, str(program), str(sockets), "77"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "RANK": "0"},
        )
        try:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "up\n"
            config = f"ACTIVITIES_LOG_FILE={sockets}/traces/a.json\n"
            answer = client.request_dynolog(endpoint, config, 0, [], 1)
            assert answer.processes_matched == answer.activity_profilers_triggered == [77]
            assert "a.json" in rank.stdout.readline()
            assert launcher.ask() == ""
        finally:
            rank.kill()
            rank.communicate()


def test_first_processes_of_containers_write_to_files_of_their_own(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    # Each is pid 1 to itself, and Kineto tells files apart by that alone.
    (sockets / "traces").mkdir()
    program = Path(__file__).parent / "programs" / "kineto_program.py"
    for ask_all in (
        lambda: client.request_dynolog(
            endpoint, f"ACTIVITIES_LOG_FILE={sockets}/traces/a.json\n", 0, [], 9
        ),
        lambda: client.place(endpoint, ProfileRequest()),
    ):
        processes = [
            subprocess.Popen(
                [sys.executable, str(program), str(sockets), "1"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        try:
            lines = [process.stdout for process in processes if process.stdout is not None]
            assert [line.readline() for line in lines] == ["up\n"] * 2
            ask_all()
            files = {
                values_of(line.readline().replace(" ", "\n"))["ACTIVITIES_LOG_FILE"]
                for line in lines
            }
            assert len(files) == 2
        finally:
            for process in processes:
                process.kill()
                process.communicate()
