"""One request to the agents of two hosts, each with a process that plays Kineto."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import msgspec
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
    placed: dict[Endpoint, list[str]] = {}

    def late(asked: Endpoint, request: ProfileRequest) -> tuple[str, list[Receipt]]:
        if asked not in tried:
            # As if one had it at once, and that of the other were on its way until the start.
            start_s = time.time() + (0.0 if asked is second else 60.0)
            window = msgspec.structs.replace(request.window, start_ms=int(start_s * 1e3))
            request = msgspec.structs.replace(request, window=window)
            tried.append(asked)
        order, receipts = place(asked, request)
        placed.setdefault(asked, []).append(order)
        return order, receipts

    tried: list[Endpoint] = []
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
                earlier = client.receipts(endpoint, placed[endpoint][0])
                withdrawn = multi_host_request.withdraw(parts)
        finally:
            other.close()
    assert [(part.problem, len(part.receipts)) for part in parts] == [("", 1), ("", 1)]
    assert withdrawn == 2
    # The first host had taken the start that the second refused.
    assert parts[0].order == placed[endpoint][-1] != placed[endpoint][0]
    assert ["cancelled" in receipt.reason for receipt in earlier] == [True]
