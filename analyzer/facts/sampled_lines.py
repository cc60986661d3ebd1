"""Places at which ranks were seen: the lines of user code that the recorder sampled."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from statistics import median

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Location
from hanglab.recorder.case.records import StackFrame


def input_line(facts: CaseFacts, rank: int) -> Location | None:
    """The line that waits for the loader: where the rank was seen most often."""
    lines = [line for line in facts.ranks[rank].lines if "input" in (line.below, line.within)]
    if not lines:
        return None
    most = max(lines, key=lambda line: line.count)
    return facts.ranks[rank].location(StackFrame(most.function, most.file, most.line))


def shares_of_line(facts: CaseFacts, frame: StackFrame) -> dict[int, float]:
    """Rank -> share of its samples whose innermost user line is the frame's.

    What every rank was seen at alike is left aside, such as its start: of a short job's samples
    that is most.
    """
    seen: dict[int, Counter[tuple[StackFrame, bool]]] = {}
    for rank, view in facts.ranks.items():
        seen[rank] = Counter()
        for line in view.lines:
            at = StackFrame(line.function, line.file, line.line)
            seen[rank][at, line.below == "communication"] += line.count
    alike = functools.reduce(operator.and_, seen.values())
    apart = {rank: counts - alike for rank, counts in seen.items()}
    return {
        rank: counts[frame, False] / sum(counts.values()) if counts else 0.0
        for rank, counts in apart.items()
    }


def busiest_line(facts: CaseFacts, rank: int, section: str | None = None) -> StackFrame | None:
    """The line that the rank was seen at most often beyond its peers, calls to them aside.

    Of ``section`` alone, if any line of the rank's was seen in it; there the rank's most frequent
    one will do: peers that wait for a processor are seen as often.
    """
    if not any(line.section == section for line in facts.ranks[rank].lines):
        section = None
    counts: dict[int, Counter[StackFrame]] = {}
    for r, view in facts.ranks.items():
        counts[r] = Counter()
        for line in view.lines:
            if line.below != "communication" and section in (None, line.section):
                counts[r][StackFrame(line.function, line.file, line.line)] += line.count
    peers = [r for r in counts if r != rank]
    excess = {
        frame: seen - median(counts[r][frame] for r in peers)
        for frame, seen in counts[rank].items()
        if peers
    }
    best = max(excess, key=lambda frame: excess[frame], default=None)
    if best is not None and excess[best] > 0:
        return best
    return counts[rank].most_common(1)[0][0] if section else None
