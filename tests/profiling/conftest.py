from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanglab.recorder.profiling.client import Endpoint
from hanglab.recorder.profiling.service import ProfilingService, Settings


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder whose path is short enough for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="hlp-") as folder:
        yield Path(folder)


@pytest.fixture
def service(sockets: Path) -> Iterator[ProfilingService]:
    found = ProfilingService(
        Settings(root=sockets / "traces", host="here", socket_folder=sockets, port=0)
    )
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def endpoint(service: ProfilingService) -> Endpoint:
    return Endpoint("127.0.0.1", service.port)
