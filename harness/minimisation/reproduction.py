"""A cut-down hang, and the words about it in the files that are written."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.reduced_program import ReducedProgram, operations_of
from hanglab.analyzer.program.simulation import simulate
from hanglab.analyzer.recorded_endings import RecordedEnding, words_of
from hanglab.analyzer.simulated_verdict import semantics_of
from hanglab.analyzer.source_positions import SourcePosition
from hanglab.analyzer.verdict import Cause, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.harness.minimisation.endings import Ending, RankEnding
from hanglab.harness.scenarios.declaration import DEFAULT_HANG_AFTER_S
from hanglab.recorder.case.backends import DEFAULT_BACKEND

#: Characters of a line.
WIDTH = 96


@dataclass(frozen=True)
class Reproduction:
    """A cut-down job with how its ranks end, and of how much it is left."""

    reduced: ReducedProgram
    endings: tuple[Ending, ...]
    whole_ranks: int
    whole_operations: int
    cause: Cause
    #: Culprits, as ranks of the whole job.
    blamed: frozenset[int]
    status: Status = Status.HUNG
    #: What its real run came to, where that is another cause.
    caveat: str = ""
    #: The same ranks without the fault; None where none was found.
    sound: Program | None = None
    #: Seconds without movement after which its real run was captured.
    hang_after_s: float = DEFAULT_HANG_AFTER_S
    #: What it is to run on, as command lines name it.
    backend: str = DEFAULT_BACKEND
    #: What ranks of the whole job do that is no call before the call in which they stop.
    before_stop: Mapping[int, Sequence[RecordedEnding]] = field(default_factory=dict)
    #: Places of last calls, by rank of the script, where they are not in one loop.
    positions: Mapping[int, SourcePosition] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        return f"{self.cause.value} by {name_ranks(sorted(self.blamed))}"

    @property
    def ranks(self) -> int:
        return len(self.reduced.ranks)

    @property
    def culprits(self) -> list[int]:
        """Culprits that are left, by their numbers in the script."""
        named = self.blamed
        return [rank for rank, name in enumerate(self.reduced.ranks) if name in named]

    @property
    def operations(self) -> int:
        return len(operations_of(self.reduced.program))


def title(reproduction: Reproduction) -> str:
    """The first sentence of a file."""
    return wrapped(f"Hangs as a recorded job did: {reproduction.reason}.")


def history(reproduction: Reproduction) -> str:
    """The way from the job to it, and what its ranks do, in sentences."""
    waits = "; ".join(_waits(reproduction))
    text = (
        f"`hanglab minimise` left {reproduction.ranks} of {reproduction.whole_ranks} ranks and "
        f"{reproduction.operations} of {reproduction.whole_operations:,} operations of that job. "
        f"{waits[:1].upper()}{waits[1:]}. To blame: "
        f"{name_ranks(reproduction.culprits)}. {reproduction.caveat}"
    )
    return wrapped(text.rstrip())


def _waits(reproduction: Reproduction) -> Iterator[str]:
    """Ranks and the calls that they wait in, in words."""
    run = simulate(reproduction.reduced.program, semantics_of(reproduction.backend))
    for rank, ending in enumerate(reproduction.endings):
        open_ = [one.action.op for one in run.ranks[rank].issued if not one.done]
        done = reproduction.before_stop.get(reproduction.reduced.ranks[rank])
        if done:
            yield f"rank {rank} does before that as evidence says: {words_of(done)}"
        if open_:
            position = reproduction.positions.get(rank)
            where = f", {position.words}" if position is not None and position.words else ""
            yield f"rank {rank} waits in {open_[-1]}{where}"
        else:
            yield f"rank {rank} {_told_ending(ending)}"


def _told_ending(ending: Ending) -> str:
    if isinstance(ending, RecordedEnding):
        return f"ends as that of the job, of which evidence says: {ending.words}"
    return "ends" if ending is RankEnding.ITSELF else ending.value


def wrapped(text: str) -> str:
    """The text in lines that fit."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
