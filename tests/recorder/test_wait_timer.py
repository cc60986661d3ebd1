"""Waits are timed by one wrapper of each method, whoever wraps it and in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from installed import needs_torch

from hanglab.recorder.case import user_code as ownership
from hanglab.recorder.case.layout import Slot
from hanglab.recorder.rank.boundary import Boundary
from hanglab.recorder.rank.call_site import CallSites
from hanglab.recorder.rank.loader_queues import LoaderQueues
from hanglab.recorder.rank.loader_waits import LoaderWatch
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import section_type
from hanglab.recorder.rank.wait_timer import COMMUNICATION, INPUT, OPERATIONS, SINCE, WAIT_TIMER

pytestmark = needs_torch


class Recording:
    """The recorder's two wrappings that see waits."""

    def __init__(self) -> None:
        from torch._C._distributed_c10d import ProcessGroup, Work
        from torch.utils.data import dataloader

        self.progress = ProgressFile(None)
        user_code = ownership.UserCode([], [], [])
        self.boundary = Boundary(
            self.progress, CallSites(user_code, self.progress.text), lambda group: None
        )
        self.loader = LoaderWatch(
            section_type(self.progress),
            lambda batch: None,
            lambda workers: None,
            LoaderQueues(self.progress),
        )
        self.boundary.install(ProcessGroup, Work)
        self.loader.install(dataloader)

    def end(self) -> None:
        self.boundary.uninstall()
        self.loader.uninstall()

    @property
    def operations(self) -> int:
        return self.progress.slots[Slot.OPERATIONS_TOTAL]


def entries() -> list[object]:
    from torch._C._distributed_c10d import ProcessGroup, Work
    from torch.distributed import _functional_collectives as functional
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return [
        ProcessGroup.__dict__["allreduce"],
        ProcessGroup.__dict__["alltoall_base"],
        Work.__dict__["wait"],
        _BaseDataLoaderIter.__dict__["__next__"],
        functional.__dict__["wait_tensor"],
    ]


@pytest.fixture
def group() -> Iterator[None]:
    from torch import distributed

    before = entries()
    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    try:
        yield
    finally:
        distributed.destroy_process_group()
    assert entries() == before, "all is put back"


def timed(work: Callable[[], Any]) -> list[int]:
    """What a call adds to the thread's record; it leaves no wait open."""
    before = list(WAIT_TIMER.record())
    work()
    after = WAIT_TIMER.record()
    assert after[SINCE] == 0
    return [now - then for now, then in zip(after, before, strict=True)]


def communicate() -> None:
    import torch
    from torch import distributed

    tensor = torch.ones(2)
    distributed.all_reduce(tensor)  # by the wrapper for usual arguments
    distributed.all_to_all_single(torch.empty(2), tensor)  # by the general one
    work = distributed.all_reduce(tensor, async_op=True)
    work.wait()
    work.wait()  # of an operation that is waited for already
    with pytest.raises(TypeError):
        distributed.group.WORLD.allreduce("no tensors", "no options")
    with pytest.raises(TypeError):
        work.wait(no_such="argument")


def load() -> None:
    from torch.utils.data import DataLoader

    assert len(list(DataLoader([1, 2, 3]))) == 3  # type: ignore[arg-type]


def check_all_is_timed() -> None:
    found = timed(communicate)
    assert found[COMMUNICATION] > 0 and found[INPUT] == 0
    assert found[OPERATIONS] == 4, "each counts once"
    found = timed(load)
    assert found[INPUT] > 0 and found[COMMUNICATION] == found[OPERATIONS] == 0


def check_nothing_is_timed() -> None:
    assert timed(communicate)[: OPERATIONS + 1] == [0, 0, 0]
    assert timed(load)[: OPERATIONS + 1] == [0, 0, 0]


def test_a_detector_in_a_recorded_job(group: None) -> None:
    recording = Recording()
    check_nothing_is_timed()
    wrapped = entries()[:4]
    WAIT_TIMER.acquire()
    assert entries()[:4] == wrapped, "no wrapper over the recorder's"
    check_all_is_timed()
    WAIT_TIMER.release()
    check_nothing_is_timed()
    assert recording.operations == 12
    recording.end()


def test_a_recorder_that_comes_after_the_detector(group: None) -> None:
    WAIT_TIMER.acquire()
    WAIT_TIMER.acquire()
    check_all_is_timed()
    recording = Recording()
    check_all_is_timed()
    assert recording.operations == 4
    WAIT_TIMER.release()
    check_all_is_timed()
    # As in a process that was forked off a rank.
    recording.end()
    check_all_is_timed()
    assert recording.operations == 8
    WAIT_TIMER.release()
    check_nothing_is_timed()
