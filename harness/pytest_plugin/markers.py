"""Markers of tests that are not scenarios: what a test says it needs, and a skip without it."""

from __future__ import annotations

from typing import Final

import pytest

from hanglab.harness import capabilities
from hanglab.harness.launchers.selection import LAUNCHERS
from hanglab.harness.leases.gpus import GPU, GpuPool

#: Capabilities by marker.
NEEDS_OF_MARKERS: Final = {"docker": LAUNCHERS["docker"].needs, "root": ("root",)}


def skip_unless_able(item: pytest.Item) -> None:
    """Skips a test whose markers name what this machine has not, with reason and remedy."""
    for marker, needs in NEEDS_OF_MARKERS.items():
        if item.get_closest_marker(marker) is not None:
            for name in needs:
                found = capabilities.capability(name)
                if not found.available:
                    remedy = f"; {found.remedy}" if found.remedy else ""
                    pytest.skip(f"needs {name}: {found.reason}{remedy}")
    wanted = _gpus(item)
    if wanted:
        pool = GpuPool()
        if len(pool) < wanted:
            problem = f" ({pool.machine.problem})" if pool.machine.problem else ""
            pytest.skip(f"needs {GPU.count(wanted)}, there are {len(pool)}{problem}")


def _gpus(item: pytest.Item) -> int:
    several = item.get_closest_marker("multi_gpu")
    if several is None:
        return 1 if item.get_closest_marker("one_gpu") is not None else 0
    if len(several.args) != 1 or not isinstance(several.args[0], int):
        raise pytest.UsageError(f"{item.nodeid}: multi_gpu takes the number of GPUs: multi_gpu(2)")
    return several.args[0]
