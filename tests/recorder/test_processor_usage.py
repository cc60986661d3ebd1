"""What a rank's record of its processor time counts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from struct import unpack_from

import pytest

from hanglab.recorder.case import layout
from hanglab.recorder.rank import processor_usage
from hanglab.recorder.rank.processor_usage import UsageSampler, count_waits_of
from hanglab.recorder.rank.progress_file import ProgressFile

DEVICE = 1


@pytest.fixture
def waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Waits that the next record tells of, in ns, where the kernel counts those of each thread."""
    monkeypatch.setattr(processor_usage, "_AWAITED", [])

    def opened(thread: int) -> int | None:
        try:
            return os.open(tmp_path / str(thread), os.O_RDONLY)
        except OSError:
            return None

    monkeypatch.setattr(processor_usage, "_open_schedstat", opened)
    progress = ProgressFile(None)
    sampler = UsageSampler(progress)
    at = progress.at[layout.USAGE]
    looks = itertools.count()

    def look(**counts: int) -> int:
        for thread, count in counts.items():
            number = os.getpid() if thread == "main" else DEVICE
            (tmp_path / str(number)).write_text(f"7 {count} 3\n")
        progress.step()
        sampler.look()
        place = at + next(looks) * layout.USAGE.record
        found: int = unpack_from("<6q", progress.mapping, place)[3]
        return found

    return look


def test_waits_of_a_device_that_a_thread_stands_for_are_the_ranks(
    waited: Callable[..., int],
) -> None:
    assert waited(main=100) == 100
    count_waits_of(DEVICE)
    assert waited(main=120, device=30) == 150
    assert waited(main=125, device=90) == 215


def test_waits_are_unknown_where_the_kernel_counts_none_of_a_thread(
    waited: Callable[..., int],
) -> None:
    count_waits_of(DEVICE)
    assert waited(main=100) == layout.NONE
