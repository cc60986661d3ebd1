"""Places at which ranks were seen: the lines of user code that the recorder sampled."""

from __future__ import annotations

from collections import Counter
from statistics import median

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.thresholds import SAMPLE_NS
from hanglab.analyzer.verdict import Location
from hanglab.recorder.case.records import StackFrame


def input_line(facts: CaseFacts, rank: int) -> Location | None:
    """The line that waits for the loader: where the rank was seen most often."""
    lines = [line for line in facts.ranks[rank].lines if "input" in (line.below, line.within)]
    if not lines:
        return None
    most = max(lines, key=lambda line: line.count)
    return facts.ranks[rank].location(StackFrame(most.function, most.file, most.line))


def time_at_own_lines(facts: CaseFacts, rank: int, without: int | None = None) -> float:
    """Nanoseconds, by samples, that the rank was at lines for longer than its peers, calls to them
    aside; ``without`` is no peer."""
    excess, _ = _beyond_peers(facts, rank, None, without)
    return SAMPLE_NS * sum(max(0.0, samples) for samples in excess.values())


def busiest_line(facts: CaseFacts, rank: int, section: str | None = None) -> StackFrame | None:
    """The line that the rank was seen at most often beyond its peers, calls to them aside.

    Of ``section`` alone, if any line of the rank's was seen in it; there the rank's most frequent
    one will do where none stands out: peers that wait for a processor are seen as often.
    """
    if not any(line.section == section for line in facts.ranks[rank].lines):
        section = None
    excess, own = _beyond_peers(facts, rank, section)
    best = max(excess, key=lambda frame: excess[frame], default=None)
    if best is not None and excess[best] > 0:
        # Counts of samples vary by their roots: so does a difference by that of their sum.
        counted = 2 * own[best] - excess[best]
        if section is None or excess[best] ** 2 > counted:
            return best
    return own.most_common(1)[0][0] if section else None


def main_line(facts: CaseFacts, rank: int) -> StackFrame | None:
    """The line at which the rank was seen in most of its samples, calls to peers aside."""
    _, own = _beyond_peers(facts, rank, None)
    line, count = own.most_common(1)[0] if own else (None, 0)
    return line if 2 * count > own.total() else None


def _beyond_peers(
    facts: CaseFacts, rank: int, section: str | None, without: int | None = None
) -> tuple[dict[StackFrame, float], Counter[StackFrame]]:
    """Samples of the rank's lines beyond the median of its peers, and all of its samples."""
    counts: dict[int, Counter[StackFrame]] = {}
    for r, view in facts.ranks.items():
        if r == without:
            continue
        counts[r] = Counter()
        for line in view.lines:
            if line.below != "communication" and section in (None, line.section):
                counts[r][StackFrame(line.function, line.file, line.line)] += line.count
    own = counts.pop(rank)
    excess = {
        frame: seen - median(counts[r][frame] for r in counts)
        for frame, seen in own.items()
        if counts
    }
    return excess, own
