"""The order of lines in a script by which ranks stand where the job's did, and not all in one loop.

One loop makes all calls of a table.  Where the job's ranks stood in different iterations, each call
has the number of its own; who stood behind the loop, or at a later line, makes its last call there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hanglab.analyzer.program.reduced_program import ReducedProgram
from hanglab.analyzer.program.simulation import Backend, simulate
from hanglab.analyzer.source_positions import SourcePosition, differ, positions_among

#: A function of the script, and the arguments of one call.
Words = tuple[str, ...]

_GO_ON = ["", "", "def go_on():", '    """Make no call in an iteration of the loop."""']


@dataclass
class CallLayout:
    """``rows`` are made in the loop; ``behind`` are the last calls after it, line by line."""

    rows: list[list[Words]]
    numbered: bool = False
    #: By line: the ranks that make a call there.
    behind: Mapping[int, Mapping[Words, list[int]]] = field(default_factory=dict)

    @property
    def definitions(self) -> list[str]:
        return _GO_ON if any("go_on" in words for mine in self.rows for words in mine) else []

    def lines(self, condition: str = "") -> Iterator[str]:
        """The lines behind the loop, each for its ranks where ``condition`` holds."""
        for _, calls in sorted(self.behind.items()):
            for number, ((name, *arguments), ranks) in enumerate(calls.items()):
                # Of alternatives none is further on in the program than the other.
                yield f"{'elif' if number else 'if'} {condition}rank in {ranks}:"
                yield f"    {name}({', '.join(arguments)})"


def lay_out(rows: Sequence[list[Words]], positions: Mapping[int, SourcePosition]) -> CallLayout:
    """The layout of the ranks' calls, of which those with a position make their last one there."""
    kept = [list(mine) for mine in rows]
    numbered = any(one.step or one.behind for one in positions.values())
    behind: dict[int, dict[Words, list[int]]] = {}
    for rank, position in positions.items():
        if position.behind or not numbered:
            last = kept[rank].pop()
            behind.setdefault(position.line, {}).setdefault(last, []).append(rank)
    if numbered:
        kept = [_numbered(mine, positions.get(rank)) for rank, mine in enumerate(kept)]
    return CallLayout(kept, numbered, behind)


def _numbered(calls: Sequence[Words], position: SourcePosition | None) -> list[Words]:
    """The calls with the iteration of each, of which the last is the one that is told."""
    if position is None:
        return of_one_iteration(calls)
    # A loop that a rank has left counts for it only if it has been in there.
    *before, last = calls or [("go_on",)]
    return [*of_one_iteration(before), (str(position.step), *last)]


def of_one_iteration(calls: Sequence[Words]) -> list[Words]:
    return [("0", *words) for words in calls]


def positions_in(
    positions: Mapping[int, SourcePosition], reduced: ReducedProgram, backend: Backend
) -> dict[int, SourcePosition]:
    """Positions of the ranks that are left, and that wait in their last call; empty if equal."""
    run = simulate(reduced.program, backend)
    found = {
        rank: position
        for rank, position in positions_among(positions, reduced.ranks).items()
        if (issued := run.ranks[rank].issued)
        and not issued[-1].done
        and not issued[-1].action.overlap
    }
    return found if differ(found) else {}


__all__ = ["CallLayout", "Words", "lay_out", "of_one_iteration", "positions_in"]
