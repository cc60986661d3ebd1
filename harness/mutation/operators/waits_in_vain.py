"""One rank stands still outside of communication: a lock, the interpreter's, a read, a loop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import VALUES, preceded, strikes
from hanglab.harness.mutation.truth import truth


def _mutate(
    target: MutationTarget, cause: Cause, wait: str, what: str, salt: int, follow: bool = True
) -> Iterator[Mutation]:
    profile = target.profile
    for statement in target.busiest:
        rank = profile.pick_rank(statement.line, salt, least=3)
        if rank is None:
            continue
        execution = profile.middle(statement.line, rank)
        due = strikes(rank, execution, follow=follow)
        yield Mutation(
            statement,
            {statement.node: preceded(statement, f"{due} and {wait}")},
            rank,
            truth([cause], [rank]),
            f"rank {rank} {what} at line {statement.line}, execution {execution}",
        )


OPERATORS = [
    Operator(
        "lock_held",
        "a lock that one rank waits for in vain",
        partial(
            _mutate,
            cause=Cause.PYTHON_DEADLOCK,
            wait=f"{VALUES}.held_lock().acquire()",
            what="waits for a lock",
            salt=0,
        ),
    ),
    Operator(
        "gil_held",
        "the interpreter's lock held in C on one rank",
        partial(
            _mutate,
            cause=Cause.GIL_HELD,
            wait=f"{VALUES}.gil_keeper()(3600)",
            what="holds the interpreter's lock",
            salt=1,
        ),
    ),
    Operator(
        "read_without_end",
        "a read that never returns on one rank",
        partial(
            _mutate,
            cause=Cause.MISSING_RANK,
            wait=f"{VALUES}.read({VALUES}.silent_pipe(), 1)",
            what="reads what never comes",
            salt=2,
        ),
    ),
    Operator(
        "busy_loop",
        "a loop that never ends on one rank",
        partial(
            _mutate,
            cause=Cause.BUSY_LOOP,
            wait=f"any(t < 0 for t in iter({VALUES}.now, None))",
            what="polls for ever",
            salt=3,
            follow=False,
        ),
    ),
]
