"""Recording of CUDA graphs: captures and replays, of which no buffer has an entry.

``torch.cuda.CUDAGraph`` is a class of Python with the methods below.  Each graph has a number, by
the order of the captures.  Seen to work on the emulated device alone: no GPU was at hand.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from hanglab.recorder.case.operations import GRAPH_CAPTURE, GRAPH_REPLAY
from hanglab.recorder.rank.boundary import Boundary
from hanglab.recorder.rank.error_guard import is_the_jobs
from hanglab.recorder.rank.hooks import Hooked


class GraphReplays(Hooked):
    """Wraps the beginning and end of a capture, and the replay."""

    def __init__(self, boundary: Boundary) -> None:
        super().__init__()
        self._boundary = boundary
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._captures = 0
        #: (cell, number) of the capture that is open; torch allows one at a time.
        self._open: tuple[Any, int] | None = None

    def install(self, graph: type) -> None:
        """``graph`` is torch.cuda.CUDAGraph.  Installing twice does nothing."""
        if self._hooks:
            return
        for name, wrapper in (
            ("capture_begin", self._begin_wrapper),
            ("capture_end", self._end_wrapper),
            ("replay", self._replay_wrapper),
        ):
            if name in graph.__dict__:
                self._hooks.put(graph, name, wrapper(getattr(graph, name)))

    def _begin_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            try:
                self._captures += 1
                self._numbers[graph] = self._captures
                frame = sys._getframe(1)
                self._open = self._boundary.enter(GRAPH_CAPTURE, "", frame, self._captures)
            except Exception as error:
                if is_the_jobs(error):
                    raise
            return result

        capture_begin.__doc__ = original.__doc__
        return capture_begin

    def _end_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            opened, self._open = self._open, None
            try:
                return original(graph, *args, **kwargs)
            finally:
                if opened is not None:
                    self._boundary.leave(*opened, failed=False)

        capture_end.__doc__ = original.__doc__
        return capture_end

    def _replay_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                number = self._numbers.get(graph, 0)
                opened = self._boundary.enter(GRAPH_REPLAY, "", sys._getframe(1), number)
            except Exception as error:
                if is_the_jobs(error):
                    raise
                return original(graph, *args, **kwargs)
            failed = True
            try:
                result = original(graph, *args, **kwargs)
                failed = False
                return result
            finally:
                self._boundary.leave(*opened, failed)

        replay.__doc__ = original.__doc__
        return replay
