"""Places in the source of a job at which its ranks wait, where they are not the same for all.

Ranks that wait in calls that do not fit may stand in different iterations of a loop, behind it, or
at different lines: that tells who left something out, and no call shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.code_order import comes_before
from hanglab.analyzer.facts.loops import counter_of, left_loops, loops_around


@dataclass(frozen=True)
class SourcePosition:
    """The place of a rank's last call, compared with those of its peers."""

    #: Iterations that it has begun beyond those of the peer that has begun the fewest.
    step: int = 0
    #: It stands behind a loop in which a peer stands.
    behind: bool = False
    #: Lines at which peers stand that come before its own in the same iteration.
    line: int = 0

    @property
    def words(self) -> str:
        """The place, as half a sentence; "" of a rank that none of its peers is behind."""
        if self.behind:
            return "behind the loop that peers are in"
        if self.step:
            return "in a later iteration of the loop than that of peers"
        return "at a later line than that of peers" if self.line else ""


def source_positions(facts: CaseFacts) -> dict[int, SourcePosition]:
    """Positions of the ranks that wait in calls; empty where nothing tells that they differ."""
    graph = facts.graph
    if not facts.stuck or not (graph.divergences or graph.cycles):
        return {}
    if any(wait.call.seq is None for wait in graph.waits):
        return {}  # ends of messages stand at lines of their own
    waiting = sorted({wait.call.rank for wait in graph.waits} & facts.ranks.keys())
    views = {rank: facts.ranks[rank] for rank in waiting}
    if len(views) < 2 or any(v.ended is not None or not v.program_frames for v in views.values()):
        return {}
    behind = {rank: bool(left_loops(facts, rank)) for rank in views}
    steps = _steps(list(views.values()), behind)
    if any(behind.values()) or len(set(steps)) > 1:
        found = {
            rank: SourcePosition(step=step, behind=behind[rank])
            for rank, step in zip(views, steps, strict=True)
        }
    else:
        lines = _lines(list(views.values()))
        found = {rank: SourcePosition(line=n) for rank, n in zip(views, lines, strict=True)}
    return found if differ(found) else {}


def positions_among(
    positions: Mapping[int, SourcePosition], ranks: Sequence[int]
) -> dict[int, SourcePosition]:
    """Positions of some ranks of the job alone, by their places in ``ranks``; empty if equal."""
    kept = {n: positions[rank] for n, rank in enumerate(ranks) if rank in positions}
    if not differ(kept):
        return {}
    first = min(one.step for one in kept.values())
    lines = sorted({one.line for one in kept.values()})
    return {
        n: replace(one, step=one.step - first, line=lines.index(one.line))
        for n, one in kept.items()
    }


def differ(positions: Mapping[int, SourcePosition]) -> bool:
    """True if not all ranks are at one place, and some are not behind their loop."""
    return len(set(positions.values())) > 1 and not all(one.behind for one in positions.values())


def _steps(views: Collection[RankView], behind: Mapping[int, bool]) -> list[int]:
    """Iterations begun by each beyond the fewest: by marked steps, or the counter of a loop.

    That is the outermost one around those who have left none in which their counts differ.
    """
    marked = [view.progress.step if view.progress is not None else -1 for view in views]
    if min(marked) >= 0:
        return [step - min(marked) for step in marked]
    inside = next((view for view in views if not behind[view.rank]), None)
    for loop in reversed(loops_around(inside)) if inside is not None else []:
        counts = [counter_of(view, loop) for view in views]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            break
        if len(set(known)) > 1:
            return [count - min(known) for count in known]
    return [0] * len(views)


def _lines(views: Sequence[RankView]) -> list[int]:
    """Numbers of the lines that come before each rank's, in the function that parts their stacks.

    All 0 where ranks stand in different functions, or nothing tells the order of their lines.
    """
    none = [0] * len(views)
    for frames in zip(*(reversed(view.program_frames) for view in views), strict=False):
        if len({(frame.file, frame.function) for frame in frames}) > 1:
            return none
        lines = [frame.line for frame in frames]
        if len(set(lines)) == 1:
            continue
        first = frames[0]
        shape = next(
            (
                shape
                for view in views
                for shape in view.shapes
                if (shape.file, shape.function) == (first.file, first.function.rpartition(".")[2])
                and shape.encloses(first.line)
            ),
            None,
        )
        if shape is None:
            return none
        known = set(lines)
        return [sum(comes_before(shape, other, line) for other in known) for line in lines]
    return none


__all__ = ["SourcePosition", "differ", "positions_among", "source_positions"]
