"""One rank's input: a loader that stops to deliver, a worker that dies, half of the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import libcst as cst

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.communication import called_name, calls_of
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import POINT, expression
from hanglab.harness.mutation.truth import truth

#: Calls that take a data set, with its name among their arguments.
_TAKERS = {"DataLoader": "dataset", "Trainer": "train_dataset"}
#: A sample that is read in the second step or later.
_READS = 48


def _mutate(
    target: MutationTarget,
    change: Callable[[str, int], str],
    causes: Sequence[Cause],
    what: str,
    salt: int,
    workers: int = 0,
) -> Iterator[Mutation]:
    profile, script = target.profile, target.script
    for statement in target.statements:
        for call in calls_of(statement):
            rank = profile.pick_rank(statement.line, salt)
            argument = _data_set(call)
            if argument is None or rank is None:
                continue
            loading = [one for one in call.args if _keyword(one) == "num_workers"]
            if workers and (called_name(call) != "DataLoader" or loading):
                continue
            changed = argument.with_changes(
                value=expression(change(script.code(argument.value), rank))
            )
            struck = call.with_changes(
                args=[changed if one is argument else one for one in call.args]
            )
            yield Mutation(
                statement,
                {argument.value: changed.value} if not workers else {call: _with(struck, workers)},
                rank,
                truth(causes, [rank], has_line=False),
                f"rank {rank} {what}, by its data set of line {statement.line}",
            )


def _data_set(call: cst.Call) -> cst.Arg | None:
    name = _TAKERS.get(called_name(call))
    if name is None:
        return None
    for argument in call.args:
        if _keyword(argument) == name or (argument.keyword is None and name == "dataset"):
            return argument
    return None


def _keyword(argument: cst.Arg) -> str | None:
    return argument.keyword.value if argument.keyword else None


def _with(call: cst.Call, workers: int) -> cst.Call:
    """The call with so many workers, for all ranks: their number is not what is wrong."""
    source = cst.Module([]).code_for_node(call).rstrip()
    body = source.removesuffix(")").rstrip().rstrip(",")
    return cst.ensure_type(cst.parse_expression(f"{body}, num_workers={workers})"), cst.Call)


def _stuck(samples: str, rank: int) -> str:
    return f"{POINT}.stuck_dataset({samples}, {rank}, {_READS})"


def _dying(samples: str, rank: int) -> str:
    return f'{POINT}.stuck_dataset({samples}, {rank}, {_READS}, end="dies")'


def _half(samples: str, rank: int) -> str:
    return f"{POINT}.half_dataset({samples}, {rank})"


OPERATORS = [
    Operator(
        "worker_stuck",
        "a worker of one rank's loader that stops to deliver",
        partial(
            _mutate,
            change=_stuck,
            causes=[Cause.LOADER_STUCK],
            what="waits for its loader's worker",
            salt=0,
            workers=1,
        ),
    ),
    Operator(
        "worker_died",
        "a worker of one rank's loader that dies",
        partial(
            _mutate,
            change=_dying,
            causes=[Cause.LOADER_WORKER_DIED],
            what="loses its loader's worker",
            salt=1,
            workers=1,
        ),
    ),
    Operator(
        "half_of_the_input",
        "a data set half as long on one rank",
        partial(
            _mutate,
            change=_half,
            causes=[Cause.UNEVEN_INPUTS],
            what="has half of the samples",
            salt=2,
        ),
    ),
]
