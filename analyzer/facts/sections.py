"""Processor time of each rank's sections, as far as it was recorded."""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.slowness.section_costs import Costs, SectionCost, TypicalCost
from hanglab.recorder.slowness.thresholds import FEWEST_FOR_MEAN


def section_costs(facts: CaseFacts) -> Costs:
    """Costs of all sections but waits for input."""
    costs: dict[tuple[str, str], dict[int, SectionCost]] = {}
    for rank, view in facts.ranks.items():
        progress = view.progress
        for total in progress.section_totals if progress else ():
            if progress and total.kind != "input" and total.count:
                cost = SectionCost(total.count, total.cpu_ns, _typical(progress, total.section))
                costs.setdefault((total.section, total.kind), {})[rank] = cost
    return costs


def _typical(progress: Progress, section: str) -> TypicalCost | None:
    times = [event.cpu_ns for event in progress.section_events if event.section == section]
    if len(times) < FEWEST_FOR_MEAN:
        return None
    quick, middle = np.quantile(times, [0.2, 0.5])
    return TypicalCost(float(middle), float(quick))
