"""Words for calls in findings about synchronization, and the lines of their culprits."""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.analyzer.graph.lone_steps import LoneStep
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.analyzer.matching.signatures import call_site
from hanglab.analyzer.verdict import Evidence, Location
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case.operations import op_of

SOURCE = "flight_recorder"
#: What torch calls a group that was given no description.
_UNDESCRIBED = "undefined"


def name_call(call: Call) -> str:
    """``all_reduce (default_pg, number 12)``, ``send to rank 3 (pipeline)``."""
    group = _known_as(call.group)
    if call.seq is not None:
        return f"{call.op or 'an operation'} ({group}, number {call.seq})"
    if not op_of(call.op).half:
        return f"a batch of sends and receives ({group})"
    way = "to" if op_of(call.op).sends else "from"
    other = f"rank {call.peer}" if call.peer is not None else "any rank"
    tag = f", tag {call.tag}" if call.tag else ""
    return f"{call.op} {way} {other} ({group}{tag})"


def name_step(step: LoneStep) -> str:
    """A sentence on what a rank did as nobody had done before."""
    behind = f"Behind {name_call(step.before)} rank" if step.before is not None else "Rank"
    called = name_call(step.call) if step.call is not None else "nothing more"
    told = f"{behind} {step.rank} called {called}, as nobody had done before"
    if step.usual is None:
        return f"{told}."
    return f"{told}; there it had always called {name_call(step.usual)}."


def _known_as(group: ProcessGroup) -> str:
    """Description of the group, else its name, with its members where ``new_group`` was told none.

    Torch numbers the groups of a job; under ``use_local_synchronization`` it takes hashes of the
    members, which tell a reader nothing that the members do not.
    """
    if _is_undescribed(group):
        ranks = name_ranks(group.members)
        return f"group {group.name} of {ranks}" if group.name.isdecimal() else ranks
    return group.description or group.name


def _is_undescribed(group: ProcessGroup) -> bool:
    return group.description == _UNDESCRIBED and bool(group.members)


def name_group(group: ProcessGroup) -> str:
    """``group pipeline``, ``group 2 of ranks 0-3``, ``the group of ranks 0-3``."""
    known = _known_as(group)
    if _is_undescribed(group):
        return known if group.name.isdecimal() else f"the group of {known}"
    return f"group {known}"


def location(call: Call | None) -> Location | None:
    """The innermost line of user code that made the call."""
    frame = call_site(call.stack) if call is not None else None
    if call is None or frame is None:
        return None
    return Location(file=frame.file, line=frame.line, function=frame.function, rank=call.rank)


def line_of(call: Call) -> str:
    frame = call_site(call.stack)
    return f" at {frame.file}:{frame.line} ({frame.function})" if frame is not None else ""


def shapes(call: Call) -> str:
    """Sizes, dtypes and what else is known of a call's arguments."""
    given = call.arguments
    parts = []
    for word, sizes, dtypes in (
        ("in", given.input_sizes, given.input_dtypes),
        ("out", given.output_sizes, given.output_dtypes),
    ):
        if sizes:
            kinds = ", ".join(dict.fromkeys(dtypes))
            parts.append(f"{word} {[list(shape) for shape in sizes]} {kinds}".rstrip())
    if given.root is not None:
        parts.append(f"root {given.root}")
    if given.reduce_op:
        parts.append(given.reduce_op)
    if given.splits:
        parts.append(f"splits {given.splits}")
    return ", ".join(parts)


def observation(call: Call, words: str = "") -> Evidence:
    """One call as evidence, with its line and its arguments."""
    given = shapes(call)
    detail = f"{words or 'called'} {name_call(call)}{line_of(call)}"
    return Evidence(SOURCE, call.rank, detail + (f", {given}" if given else ""))


def count(ranks: Sequence[int]) -> str:
    return "1 rank" if len(ranks) == 1 else f"{len(ranks)} ranks"
