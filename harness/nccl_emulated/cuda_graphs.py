"""CUDA graphs: what is captured of the stream is launched by each replay, not when it is called.

As on NCCL, a captured operation leaves no entry in the Flight Recorder ring and no work for the
watchdog, neither at its capture nor at a replay (``initWork`` of ProcessGroupNCCL.cpp records what
can be enqueued for the watchdog; ``onPre`` of FlightRecorderHook.cpp says the same of nccl2): where
replays do not meet, nothing but the hosts' waiting shows it.
"""

from __future__ import annotations

from typing import Any

from hanglab.harness.nccl_emulated.cuda_streams import use_stream
from hanglab.harness.nccl_emulated.stream import Captured, current_stream


class CUDAGraph:
    """A capture and its replays, as ``torch.cuda.CUDAGraph`` offers them."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._captured: list[Captured] = []

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """Take what is launched from now on into the graph."""
        self.reset()
        current_stream().capture = self._captured

    def capture_end(self) -> None:
        current_stream().capture = None

    def replay(self) -> None:
        """Launch all of it again, one after the other, on the same memory."""
        current_stream().replay(self._captured)

    def instantiate(self) -> None:
        """A graph can be replayed as soon as it is captured."""

    def reset(self) -> None:
        self._captured = []

    def pool(self) -> tuple[int, int]:
        return graph_pool_handle()


class Graph:
    """``torch.cuda.graph``: captures what its block launches."""

    def __init__(self, cuda_graph: CUDAGraph, *args: Any, **kwargs: Any) -> None:
        self._graph = cuda_graph
        self._stream = use_stream(None)

    def __enter__(self) -> None:
        current_stream().synchronize()
        self._stream.__enter__()
        self._graph.capture_begin()

    def __exit__(self, *error: Any) -> None:
        self._graph.capture_end()
        self._stream.__exit__(*error)


def graph_pool_handle() -> tuple[int, int]:
    """Memory of graphs is taken like any other."""
    return (0, 1)


def is_capturing() -> bool:
    return current_stream().capture is not None
