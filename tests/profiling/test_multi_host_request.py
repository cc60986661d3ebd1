"""One request to the agents of two hosts, each with a process that plays Kineto."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from played_kineto import played

from hanglab.recorder.profiling import client, multi_host_request
from hanglab.recorder.profiling.client import Endpoint
from hanglab.recorder.profiling.multi_host_request import RequestPlan
from hanglab.recorder.profiling.service import ProfilingService, Settings
from hanglab.recorder.profiling.trace_records import ProfileRequest, Receipt


def test_host_that_is_told_late_costs_nobody_the_trace(
    service: ProfilingService,
    endpoint: Endpoint,
    sockets: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = client.place
    placed: list[Endpoint] = []

    def late(asked: Endpoint, request: ProfileRequest) -> tuple[str, list[Receipt]]:
        placed.append(asked)
        if asked is second and placed.count(second) == 1:
            # More than a host at rest takes, less than the lead of the second try.
            time.sleep(1.5)
        return place(asked, request)

    with tempfile.TemporaryDirectory(prefix="hlp-") as folder:
        other = ProfilingService(
            Settings(root=Path(folder) / "traces", host="there", socket_folder=Path(folder), port=0)
        )
        second = Endpoint("127.0.0.1", other.port)
        monkeypatch.setattr(client, "place", late)
        try:
            with played(sockets, 1) as [here], played(Path(folder), 2) as [there]:
                here.ask()
                there.ask()
                parts = multi_host_request.place(RequestPlan([endpoint, second], ProfileRequest()))
                withdrawn = multi_host_request.withdraw(parts)
        finally:
            other.close()
    assert [(part.problem, len(part.receipts)) for part in parts] == [("", 1), ("", 1)]
    assert (placed.count(endpoint), placed.count(second), withdrawn) == (2, 2, 2)
