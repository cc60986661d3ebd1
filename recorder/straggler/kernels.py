"""Times of single kernels, from torch's own profiler on one entry in many."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from typing import Any

from hanglab.recorder.slowness import Summary, summarize
from hanglab.recorder.straggler.gpu import KERNEL_WINDOW, kernel_times


class KernelProfiler:
    """Kineto around every ``interval``-th entry that asks for it; 0 for none.

    Only one entry of the process is profiled at a time, and none while the job
    itself profiles.
    """

    _busy = False

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._asked = 0
        self._times: dict[str, deque[float]] = {}
        #: Why kernels are not timed; "" while they are, or nobody has asked.
        self.problem = ""

    def due(self) -> bool:
        """Count an entry that asks; True if it is the one to be profiled."""
        if not self._interval:
            return False
        self._asked += 1
        return self._asked % self._interval == 1 % self._interval

    def begin(self) -> Any:
        """Start the profiler; what ``end`` wants, None where there is to be no profile."""
        torch = sys.modules.get("torch")
        if KernelProfiler._busy or torch is None:
            return None
        try:
            if torch.autograd._profiler_enabled() or torch.cuda.is_current_stream_capturing():
                return None
            from torch.profiler import ProfilerActivity, profile

            profiler = profile(activities=[ProfilerActivity.CUDA], acc_events=True)
            profiler.start()
        except Exception as error:
            self.problem = f"kernels are not timed: {error}"
            return None
        KernelProfiler._busy = True
        return profiler

    def end(self, profiler: Any) -> None:
        """Wait for what the entry launched, stop the profiler and keep the kernels' times."""
        try:
            with contextlib.suppress(Exception):
                sys.modules["torch"].cuda.current_stream().synchronize()
            profiler.stop()
            self.keep(kernel_times(profiler.profiler.kineto_results.events()))
        except Exception as error:
            self.problem = f"kernels are not timed: {error}"
        finally:
            KernelProfiler._busy = False

    def keep(self, times: dict[str, list[float]]) -> None:
        for name, durations in times.items():
            self._times.setdefault(name, deque(maxlen=KERNEL_WINDOW)).extend(durations)

    def take(self, keep: bool) -> dict[str, Summary]:
        """Kernel -> summary of the window, which then begins anew unless it is to be kept."""
        times = self._times
        if not keep:
            self._times = {}
        found = {name: summarize(list(durations)) for name, durations in times.items()}
        return {name: summary for name, summary in found.items() if summary is not None}
