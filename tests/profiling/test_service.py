"""The agent's own threads: what goes wrong in them is told, and ends nothing."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from played_kineto import played

from hanglab.recorder.agent.profiles import Profiles
from hanglab.recorder.profiling import client
from hanglab.recorder.profiling.client import Endpoint
from hanglab.recorder.profiling.registry import Client
from hanglab.recorder.profiling.service import ProfilingService, Settings
from hanglab.recorder.profiling.trace_records import ProfileRequest


@pytest.fixture
def no_threads() -> Iterator[None]:
    """No thread can be started: each would need more stack than there are addresses."""
    before = threading.stack_size(1 << 50)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_what_fails_beside_the_fabric_does_not_end_it(sockets: Path) -> None:
    troubles: list[str] = []

    def full(client: Client) -> None:
        raise OSError(28, "No space left on device")

    settings = Settings(sockets / "traces", "here", sockets)
    service = ProfilingService(settings, at_work=full, trouble=troubles.append)
    try:
        endpoint = Endpoint("127.0.0.1", service.port)
        with played(sockets, os.getpid()) as (process,):
            process.ask()
            client.place(endpoint, ProfileRequest())
            assert process.ask() != ""
            deadline = time.monotonic() + 60
            while not troubles:
                assert time.monotonic() < deadline
                # Heard in a turn that fails at its end.
                assert process.ask() == ""
            assert [process.ask() for _ in range(3)] == ["", "", ""]
    finally:
        service.close()
    assert troubles == ["OSError: [Errno 28] No space left on device"]


def test_orders_that_come_while_the_fabric_looks_at_them(sockets: Path) -> None:
    troubles: list[str] = []
    service = ProfilingService(
        Settings(sockets / "traces", "here", sockets), trouble=troubles.append
    )
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with played(sockets, os.getpid()) as (process,), ThreadPoolExecutor(1) as pool:
            process.ask()

            def flood() -> None:
                for _ in range(400):
                    order = service.requests.place(ProfileRequest())
                    # One that is open would end the look at once.
                    service.requests.answer({"fn": "hanglab.cancel", "order": order.name})

            done = pool.submit(flood)
            while not done.done():
                # Each answer is followed by a look at all orders.
                process.ask(idle=False)
            done.result()
    finally:
        sys.setswitchinterval(interval)
        service.close()
    assert troubles == []


def test_service_without_threads_leaves_no_socket_behind(sockets: Path, no_threads: None) -> None:
    with pytest.raises(RuntimeError):
        ProfilingService(Settings(sockets / "traces", "here", sockets))
    assert not (sockets / "dynolog").exists()


@pytest.mark.usefixtures("no_threads")
def test_recording_goes_on_where_no_thread_can_be_had(sockets: Path) -> None:
    missed: list[tuple[str, str]] = []

    def miss(what: str, reason: str) -> None:
        missed.append((what, reason))

    profiles = Profiles(sockets / "case", sockets, "here", list, miss)
    profiles.look()
    profiles.close()
    ((what, reason),) = missed
    assert what == "traces"
    assert "cannot be profiled" in reason
