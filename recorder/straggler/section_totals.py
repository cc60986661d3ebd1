"""From the entries of sections to the numbers of a window, all sections at once.

Nothing imports this module before there is a report to make; see slowness/column_summaries.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from operator import sub
from typing import Any

import numpy as np

from hanglab.recorder.slowness.column_summaries import no_summaries, summarize_all
from hanglab.recorder.straggler.sections import SectionEntries, Timing
from hanglab.recorder.straggler.table import INDIVIDUAL, BestWindows, SectionTable
from hanglab.recorder.straggler.window import Measure

#: Sections are timed in nanoseconds.
_A_MILLISECOND = 1e6


def sum_up(sections: Iterable[SectionEntries], past: BestWindows, keep: bool) -> SectionTable:
    """The sections that have been entered in the window, which ends unless it is to be kept."""
    names: list[str] = []
    measures: list[Measure] = []
    walls: list[Sequence[int]] = []
    devices: list[Sequence[float]] = []
    #: Of sections that waited, the means of their waits in communication and for input; of
    #: sections whose work is something else than their wall time, their work.
    waits: dict[int, tuple[float, float]] = {}
    others: dict[int, Sequence[int]] = {}
    spinning = _waits_spin()
    for section in sections:
        taken, cpu = (section.entries, section.cpu) if keep else section.take()
        device = section.device_times(keep)
        if not taken:
            continue
        place = len(names)
        names.append(section.name)
        # Plain numbers, unless the section waited.
        wall: Any = list(taken)
        if section.waited:
            wall, communicating, reading = zip(*map(_whole, wall), strict=True)
            count = len(wall)
            waits[place] = sum(communicating) / count / 1e6, sum(reading) / count / 1e6
            others[place] = [max(0, ns) for ns in map(sub, map(sub, wall, communicating), reading)]
        measure: Measure = "wall"
        if section.hidden:
            # Where collectives that C++ issues are waited for in C++: on the CPU that takes
            # no processor time.
            others[place], measure = ((), "") if spinning else (list(cpu), "processor")
        measures.append(measure)
        walls.append(wall)
        devices.append(device)
    wall_rows = work = summarize_all(walls, _A_MILLISECOND)
    if others:
        work = wall_rows.copy()
        work[list(others)] = summarize_all(list(others.values()), _A_MILLISECOND)
    best, scores = past.judge(names, work, keep)
    means = np.zeros((len(names), 3))
    for place, of_section in waits.items():
        means[place, :INDIVIDUAL] = of_section
    means[:, INDIVIDUAL] = scores
    device_rows = summarize_all(devices) if any(devices) else no_summaries(len(names))
    return SectionTable(names, measures, means, wall_rows, work, device_rows, best)


def _whole(timing: Timing) -> tuple[int, int, int]:
    """Wall time, and what of it was communication and waiting for input."""
    return timing if isinstance(timing, tuple) else (timing, 0, 0)


def _waits_spin() -> bool:
    """True if a thread that waits may spin: for a CUDA device it does, so that its processor
    time cannot be told from work."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
