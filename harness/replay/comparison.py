"""The verdict on a replay against that on the job it replays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from rich.table import Table

from hanglab.analyzer.verdict import CollectiveRef, Status, Verdict
from hanglab.recorder.case.operations import op_of, op_of_method

ReplayOutcome = Literal["same", "differs", "not reproduced"]
EXIT_CODES: dict[ReplayOutcome, int] = {"same": 0, "differs": 1, "not reproduced": 3}

#: Members of a group that are listed; of larger ones only their number is.
_LISTED = 16


@dataclass(frozen=True)
class ReplayComparison:
    outcome: ReplayOutcome
    #: Name of what is compared, of the original, of the replay, and how they compare.
    rows: list[tuple[str, str, str, str]]

    def table(self) -> Table:
        table = Table("", "original", "replay", "")
        for row in self.rows:
            table.add_row(*row)
        return table


def compare_verdicts(
    original: Verdict, replay: Verdict, waiting: Collection[tuple[str, tuple[int, ...]]] = ()
) -> ReplayComparison:
    """Cause, culprits and operation decide; a replay that ended or tells nothing is none.

    ``waiting``: operations that are open on the culprits' peers.  Which of several a verdict
    names depends on where hosts block, so the original's has to be one of them.
    """
    pairs = [
        ("cause", _cause(original), _cause(replay)),
        ("culprits", _ranks(original.culprits), _ranks(replay.culprits)),
        ("operation", _operation(original), _operation(replay)),
    ]
    rows = [(*pair, "same" if pair[1] == pair[2] else "differs") for pair in pairs]
    if rows[-1][-1] == "differs" and _is_open(original.collective, replay.collective, waiting):
        rows[-1] = (*pairs[-1], "open in the replay, too")
    ended_well = replay.status is Status.CORRUPT and original.status is not Status.CORRUPT
    if ended_well or replay.status in (Status.HEALTHY, Status.INCONCLUSIVE):
        return ReplayComparison("not reproduced", rows)
    differs = any(how == "differs" for *_, how in rows)
    return ReplayComparison("differs" if differs else "same", rows)


def of_ranks(verdict: Verdict, ranks: Collection[int]) -> Verdict:
    """The part of a verdict that is about some ranks of its job alone."""
    collective = verdict.collective
    if collective is not None:
        members = [rank for rank in collective.ranks if rank in ranks]
        collective = msgspec.structs.replace(collective, ranks=members)
    culprits = [rank for rank in verdict.culprits if rank in ranks]
    return msgspec.structs.replace(verdict, culprits=culprits, collective=collective)


def renumbered(verdict: Verdict, ranks: Sequence[int]) -> Verdict:
    """A verdict on a job whose rank r is ``ranks[r]`` of a larger one, in that one's numbers."""
    collective = verdict.collective
    if collective is not None:
        members = [ranks[rank] for rank in collective.ranks]
        collective = msgspec.structs.replace(collective, ranks=members)
    culprits = [ranks[rank] for rank in verdict.culprits]
    return msgspec.structs.replace(verdict, culprits=culprits, collective=collective)


def _is_open(
    original: CollectiveRef | None,
    replay: CollectiveRef | None,
    waiting: Collection[tuple[str, tuple[int, ...]]],
) -> bool:
    if original is None or replay is None:
        return False
    named = (_name(replay), tuple(replay.ranks))
    renamed = {(_on_gloo(name), ranks) for name, ranks in waiting}
    return (_name(original), tuple(original.ranks)) in {named, *renamed}


def _cause(verdict: Verdict) -> str:
    return verdict.cause.value if verdict.cause else "none"


def _ranks(ranks: list[int]) -> str:
    return ", ".join(map(str, sorted(ranks))) or "none"


def _name(collective: CollectiveRef) -> str:
    return _on_gloo(op_of(collective.op).program_name)


def _on_gloo(operation: str) -> str:
    """The operation's name in gloo's buffers."""
    spec = op_of_method(operation)
    return operation if spec is None else spec.name


def _operation(verdict: Verdict) -> str:
    if verdict.collective is None:
        return "none"
    ranks = verdict.collective.ranks
    members = f"ranks {_ranks(ranks)}" if len(ranks) <= _LISTED else f"{len(ranks)} ranks"
    return f"{op_of(verdict.collective.op).program_name} of {members}"
