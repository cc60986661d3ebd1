"""Kernels and device times of the straggler detector, as far as a machine without a GPU shows them.

Kineto's events are real where they are of the processor.  Those of kernels are laid out as
Kineto writes them on a GPU (its ``output_json.cpp`` and traces of CUDA 11 and 12), and the
stream is a stand-in that passes its events when told to: neither was run on a GPU.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from hanglab.recorder.slowness import kernel_score
from hanglab.recorder.slowness.kernel_scores import common_medians
from hanglab.recorder.straggler.gpu import DeviceClock, kernel_key, kernel_times
from hanglab.recorder.straggler.kernels import KernelProfiler

#: As Kineto has described a kernel since CUDA 11, and with what later releases put behind.
METADATA = (
    '"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 4732, '
    '"registers per thread": 40, "shared memory": 0, "blocks per SM": 4.705883, '
    '"warps per SM": 75.294121, "grid": [%d, 1, 1], "block": [512, 1, 1], '
    '"est. achieved occupancy %%": 100'
)
LATER = METADATA + ', "occupancy": {"activeBlocksPerMultiprocessor": 3, "blockLimitRegs": 3}'


@dataclass
class KernelEvent:
    """The part of ``torch._C._autograd._KinetoEvent`` that is read."""

    kind: str
    title: str
    nanoseconds: int
    metadata: str = ""

    def activity_type(self) -> str:
        return self.kind

    def name(self) -> str:
        return self.title

    def duration_ns(self) -> int:
        return self.nanoseconds

    def metadata_json(self) -> str:
        return self.metadata


@pytest.mark.slow
def test_real_events_are_read_and_hold_no_kernel_without_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        torch.ones(64, 64) @ torch.ones(64, 64)
    events = list(profiler.profiler.kineto_results.events())
    assert "aten::mm" in {event.name() for event in events}
    # What is read of an event exists, and activities bear the names of libkineto.
    assert {event.activity_type() for event in events} <= {"cpu_op", "user_annotation"}
    assert all(event.duration_ns() >= 0 for event in events)
    for event in events:
        text = event.metadata_json()
        json.loads(text if text.startswith("{") else "{" + text + "}")
    assert kernel_times(events) == {}


@pytest.mark.parametrize("metadata", [METADATA, LATER, "{" + LATER + "}"])
def test_kernels_by_name_grid_and_block(metadata: str) -> None:
    gemm = "ampere_sgemm_128x64_nn"
    events = [
        KernelEvent("kernel", gemm, 250_000, metadata % 800),
        KernelEvent("kernel", gemm, 260_000, metadata % 800),
        KernelEvent("kernel", gemm, 90_000, metadata % 200),
        KernelEvent("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9_000_000, metadata % 24),
        KernelEvent("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float", 9_000_000, metadata % 24),
        KernelEvent("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1_000, '"bytes": 4'),
        KernelEvent("gpu_user_annotation", "Optimizer.step#SGD.step", 5_000_000),
        KernelEvent("cuda_runtime", "cudaLaunchKernel", 540, '"cbid": 317, "correlation": 4732'),
        KernelEvent("cpu_op", "aten::mm", 40_000),
    ]
    assert kernel_times(events) == {
        f"{gemm} grid [800, 1, 1] block [512, 1, 1]": [0.25, 0.26],
        f"{gemm} grid [200, 1, 1] block [512, 1, 1]": [0.09],
    }


@pytest.mark.parametrize("metadata", ["", "{", '"grid": [1, 1', "[]", '"grid": [1, 1, 1]', "7"])
def test_a_kernel_that_is_described_badly_goes_by_its_name(metadata: str) -> None:
    assert kernel_key("fill", metadata) == "fill"


def test_scores_of_ranks_from_their_events() -> None:
    profilers = {rank: KernelProfiler(1) for rank in range(4)}
    for rank, profiler in profilers.items():
        events = [
            KernelEvent("kernel", name, (rank + 1) * 1_000_000, METADATA % 8)
            for name in ("gemm", "relu", "ncclDevKernel_Broadcast")
            for _ in range(5)
        ]
        if rank == 1:
            events.append(KernelEvent("kernel", "its own", 70_000_000, METADATA % 8))
        profiler.keep(kernel_times(events))
    windows = {rank: profiler.take(keep=False) for rank, profiler in profilers.items()}
    assert len(windows[0]) == 2 and len(windows[1]) == 3
    best = common_medians(windows)
    scores = [kernel_score(windows[rank], best) for rank in range(4)]
    assert scores == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert profilers[0].take(keep=False) == {}, "a window begins anew"


def test_one_entry_in_so_many_is_profiled() -> None:
    def due(interval: int) -> list[int]:
        profiler = KernelProfiler(interval)
        return [n for n in range(9) if profiler.due()]

    assert due(1) == list(range(9))
    assert due(4) == [0, 4, 8]
    assert due(0) == []


@dataclass
class Stream:
    """A device that passes the events recorded on it when told to; times in milliseconds."""

    now: float = 0.0
    passed: float = 0.0
    capturing: bool = False
    failed: bool = False
    made: list[Any] = field(default_factory=list)

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Event(self, enable_timing: bool) -> StreamEvent:
        assert enable_timing
        self.made.append(StreamEvent(self))
        return self.made[-1]


@dataclass
class StreamEvent:
    stream: Stream
    at: float = -1.0

    def record(self) -> None:
        if self.stream.failed:
            raise RuntimeError("CUDA error: device-side assert triggered")
        self.at = self.stream.now

    def query(self) -> bool:
        return self.at <= self.stream.passed

    def elapsed_time(self, last: StreamEvent) -> float:
        assert self.query() and last.query(), "reading it now would wait for the device"
        return last.at - self.at


def time_entries(clock: DeviceClock, stream: Stream, *times: float) -> deque[Any]:
    pending: deque[Any] = deque(maxlen=1024)
    for ms in times:
        pair = clock.begin()
        assert pair is not None
        stream.now += ms
        pair.end(pending)
    return pending


def test_device_times_are_read_when_the_device_has_passed_them() -> None:
    stream = Stream()
    clock = DeviceClock(stream)
    pending = time_entries(clock, stream, 3.0, 4.0, 5.0)
    stream.passed = 8.0
    assert list(clock.read(pending)) == [3.0, 4.0]
    assert list(clock.read(pending)) == []
    stream.passed = 12.0
    assert list(clock.read(pending)) == [5.0]
    assert list(clock.read(time_entries(clock, stream, 1.0, 1.0))) == [], "not passed yet"
    assert len(stream.made) == 6, "events are used again"


def test_a_device_that_captures_or_has_failed_is_left_alone() -> None:
    stream = Stream(capturing=True)
    clock = DeviceClock(stream)
    assert clock.begin() is None
    stream.capturing = False
    pair = clock.begin()
    assert pair is not None
    stream.failed = True
    pending: deque[Any] = deque()
    pair.end(pending)
    assert not pending and clock.begin() is None
