"""The calls of each rank in their order, as chains of the program's own places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hanglab.analyzer.branching.program_graph import Chain, ProgramPlace
from hanglab.analyzer.branching.source_code import Sources
from hanglab.analyzer.code_owners import CodeMap, FrameLike, Owner
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.flight_recorder.columns import Entries, Frame
from hanglab.recorder.case.user_code import PARTS_OF_FUNCTIONS

#: Files of torch that a call of the user's own passes on its way into a process group.
_FRONT = ("torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py")


@dataclass(frozen=True)
class ProgramCall:
    """A call that communicates: its group and number there, where they tell it from others."""

    chain: Chain
    #: All of the program's places on the stack are known, and not the innermost alone.
    whole: bool
    key: tuple[str, int] | None
    #: The line itself calls torch.distributed; from others a module or autograd may call it often.
    direct: bool
    #: Name of the operation, where it is known.
    operation: str = ""
    #: Wall time of its host at which it was called.
    at_ns: int | None = None


@dataclass
class CallHistory:
    """A rank's calls, oldest first, as far back as its ring goes."""

    rank: int
    sites: list[ProgramCall]
    #: The ring goes back to the rank's first call.
    whole: bool
    #: Where the rank is now; None where its program has come to its end.
    now: Chain | None
    #: It waits there for its peers, in a call that makes a group, which no ring has.
    waits: bool
    #: It ended by an exception or a signal: where it would have gone is not known.
    died: bool
    #: Calls that make a group, the one that it waits in included; None where not all are known.
    groups_made: int | None = None
    #: Where it raised the exception that ended it.
    raised: Chain = ()


def call_history(facts: CaseFacts, rank: int, sources: Sources) -> CallHistory | None:
    """A rank's calls; None where they were not recorded, or were made by several threads."""
    view, dump = facts.ranks.get(rank), facts.dumps.get(rank)
    if view is None or dump is None or dump.entries is None or view.progress is None:
        return None
    calls = view.progress.operations
    if len({call.thread_id for call in calls if call.method != "new_group"}) > 1:
        return None
    entries = dump.entries
    program = _ProgramFrames(view.code, sources)
    # Calls by the thousand have stacks by the dozen.
    stacks = [_place_of(frames, program) for frames in [*entries.stacks, ()]]
    sites = [_call(entries, i, stacks) for i in range(len(entries))]
    all_known = view.progress.operations_total <= len(calls)
    whole = all_known and _from_the_first(entries)
    ended = view.ended is not None or view.position.place is StackPlace.TEARDOWN
    place = _chain(program.of(view.program_frames))
    now = None if ended else place
    raised = place if view.failed and any(one.main for one in view.exceptions) else ()
    waits = view.position.place is StackPlace.GROUP_CREATION
    made = sum(call.method == "new_group" for call in calls) if all_known else None
    died = view.failed or bool(view.exceptions)
    return CallHistory(rank, sites, whole, now, waits, died, made, raised)


def current_chain(view: RankView, sources: Sources) -> Chain:
    """The program's places on the rank's stack at the capture."""
    return _chain(_ProgramFrames(view.code, sources).of(view.program_frames))


F = TypeVar("F", bound=FrameLike)


class _ProgramFrames:
    """Tells frames of the program: the user's, and of packages those whose source is known.

    A package's other frames are passed through as torch's are: a decorator's, say.
    """

    def __init__(self, code: CodeMap, sources: Sources) -> None:
        self._code = code
        self._sources = sources

    def of(self, frames: Iterable[F]) -> list[F]:
        return [frame for frame in frames if self._is_program(frame)]

    def _is_program(self, frame: FrameLike) -> bool:
        owner = self._code.owner(frame.file)
        known = owner is Owner.PACKAGE and self._sources.at(frame.file, frame.line) is not None
        return owner is Owner.USER or known


def _from_the_first(entries: Entries) -> bool:
    numbered = entries.record_id[entries.record_id >= 0]
    return not len(numbered) or int(numbered[0]) == 0


def _place_of(frames: Sequence[Frame], program: _ProgramFrames) -> tuple[Chain, bool, bool]:
    """The program's places on the stack of a call, and whether they are all and the call direct."""
    own = program.of(frames)
    passed = frames[: frames.index(own[0])] if own else ()
    direct = all(frame.file.endswith(_FRONT) for frame in passed)
    return _chain(own), len(frames) > 1, direct


def _call(entries: Entries, index: int, stacks: Sequence[tuple[Chain, bool, bool]]) -> ProgramCall:
    # An entry without a stack has the number -1, and the last one is empty.
    chain, whole, direct = stacks[int(entries.stack[index])]
    seq = int(entries.seq[index])
    name = entries.group_at(index)
    key = (name, seq) if seq >= 0 and not entries.is_p2p[index] else None
    operation = entries.operations[int(entries.operation[index])].op
    created = int(entries.created_ns[index])
    return ProgramCall(chain, whole, key, direct, operation, created if created > 0 else None)


def _chain(frames: Iterable[FrameLike]) -> Chain:
    """Places of frames that come innermost first; parts of a function stand for the function.

    A part's line is that of the call within it, which its function's own frame stands at too.
    """
    chain = [
        ProgramPlace(f.file, f.function, f.line)
        for f in frames
        if f.function not in PARTS_OF_FUNCTIONS
    ]
    return tuple(reversed(chain))
