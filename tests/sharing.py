"""Sharing the tests out among the workers of pytest-xdist: ``docs/testing.md``.

A file runs on one worker, in order, so that its tests share the jobs that they
only look at.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

#: Files that take longest, and begin first so that no worker is left alone with one at the end.
#: The second takes a moment only: whoever has started this sees results at once.
_FIRST = (
    "tests/frameworks/test_frameworks.py",
    "tests/analyzer/flight_recorder/test_dump_formats.py",
    "tests/containers/",
    "tests/faults/",
    "tests/recording/test_record_failures.py",
    "tests/frameworks/test_straggler_callbacks.py",
    "tests/recording/test_record_command.py",
    "tests/profiling/test_jobs.py",
    "tests/recording/test_capture_and_start.py",
    "tests/profiling/test_recorded.py",
    "tests/profiling/test_namespaces.py",
    "tests/harness/test_plugin_interrupt.py",
    "tests/analyzer/causes/test_network.py",
    "tests/recorder/test_downloads.py",
    "tests/profiling/test_hta.py",
    "tests/harness/",
    "tests/archive/",
    "tests/recording/",
    "tests/recorder/test_native_sections.py",
    "tests/recorder/test_straggler_jobs.py",
    "tests/profiling/",
    "tests/recorder/",
)
#: Two jobs at a time, and controls that nothing may slow down: when the other workers are done.
_LAST = "tests/metamorphic/"
#: Jobs in containers need all of a small machine, and are built from one image: one at a time.
_CONTAINERS = ("tests/containers/", "tests/faults/")
#: They share one cluster.
_SLURM = "tests/slurm/"


class Sharing(LoadFileScheduling):
    """Files in the order of :func:`place`; those with containers, or Slurm, as if one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_SLURM):
            return "slurm"
        return "containers" if nodeid.startswith(_CONTAINERS) else super()._split_scope(nodeid)


def place(item: pytest.Item) -> int:
    """Where an item's file stands in the order of a run."""
    if item.nodeid.startswith(_LAST):
        return len(_FIRST) + 1
    return next(
        (place for place, start in enumerate(_FIRST) if item.nodeid.startswith(start)), len(_FIRST)
    )
