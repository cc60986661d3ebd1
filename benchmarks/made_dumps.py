"""Dumps that workers make where they read them; a module, so that a worker has one state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psutil
from analyzer_dumps import dump_of

from hanglab.analyzer.flight_recorder.dump_input import DumpInput

LAYOUT = "3d"
CULPRIT = 11
#: Processor seconds that this worker spent on making dumps.
_MADE_S = [0.0]


@dataclass(frozen=True)
class MadeDumps:
    """Makes the dumps of a batch where they are read."""

    ranks: int

    def __call__(self, files: Sequence[DumpInput]) -> list[DumpInput]:
        begun = time.process_time()
        made = [
            replace(file, path=None, data=dump_of(LAYOUT, self.ranks, file.rank or 0, CULPRIT))
            for file in files
        ]
        _MADE_S[0] += time.process_time() - begun
        return made


def spent_s() -> tuple[float, float, float]:
    """Processor seconds of a worker: making dumps, its child that reads, all else."""
    own = psutil.Process()
    children = [child.cpu_times() for child in own.children(recursive=True)]
    times = own.cpu_times()
    made = _MADE_S[0]
    return made, sum(c.user + c.system for c in children), times.user + times.system - made
