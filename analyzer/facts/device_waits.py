"""Ranks whose host waits for their device: in torch's synchronisation, or below it in CUDA.

``tensor.item()`` and its like are C: without native frames they are just a line of the user's.
"""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.stack_position import main_thread
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import StackFrame

#: Files of torch, and their functions that return when the device has come so far.
_PYTHON = (
    ("torch/cuda/__init__.py", "synchronize"),
    ("torch/cuda/streams.py", "synchronize"),
    ("torch/accelerator/__init__.py", "synchronize"),
    ("torch/xpu/__init__.py", "synchronize"),
    # Of an emulated device: what ``item`` and its like do there is Python.
    ("harness/nccl_emulated/host_reads.py", "read"),
)
#: The same in CUDA, HIP and torch's C++.
_NATIVE = (
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize",
    "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
    "hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize",
    "_local_scalar_dense",
)  # fmt: skip


def device_wait(view: RankView) -> str:
    """The function in which the rank's main thread waits for its device; "" if none is seen."""
    sample = view.captured_stack
    thread = main_thread(sample) if sample is not None and view.ended is None else None
    for frame in thread.frames if thread is not None else []:
        if _is_wait(frame):
            return frame.function
    captured = [s for s in view.read(files.NATIVE_STACKS) if s.kind == "rank"]
    thread = main_thread(captured[-1]) if captured and view.ended is None else None
    for frame in thread.frames if thread is not None else []:
        name = next((name for name in _NATIVE if name in frame.function), "")
        if name:
            return name
    return ""


def _is_wait(frame: StackFrame) -> bool:
    return any(frame.file.endswith(file) and frame.function == name for file, name in _PYTHON)
