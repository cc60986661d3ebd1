"""One rank's process stops or ends in the middle of its work: signals and exits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import preceded, strikes
from hanglab.harness.mutation.truth import truth

_DEFAULT = "__import__('signal').signal(__import__('signal').{0}, __import__('signal').SIG_DFL)"
_KILL = "__import__('os').kill(__import__('os').getpid(), __import__('signal').{})"


def _mutate(
    target: MutationTarget,
    causes: Sequence[Cause],
    end: str,
    what: str,
    salt: int,
    has_line: bool = False,
) -> Iterator[Mutation]:
    profile = target.profile
    for statement in target.busiest:
        rank = profile.pick_rank(statement.line, salt, least=3)
        if rank is None:
            continue
        execution = profile.middle(statement.line, rank)
        yield Mutation(
            statement,
            {statement.node: preceded(statement, f"{strikes(rank, execution)} and {end}")},
            rank,
            truth(causes, [rank], has_line=has_line),
            f"rank {rank} {what} at line {statement.line}, execution {execution}",
        )


OPERATORS = [
    Operator(
        "killed",
        "a rank killed by SIGKILL",
        partial(
            _mutate,
            causes=[Cause.CRASH],
            end=_KILL.format("SIGKILL"),
            what="is killed",
            salt=0,
        ),
    ),
    Operator(
        "segmentation_fault",
        "a rank that crashes with SIGSEGV",
        partial(
            _mutate,
            causes=[Cause.CRASH],
            end="__import__('ctypes').string_at(0)",
            what="reads address 0",
            salt=1,
        ),
    ),
    Operator(
        "terminated",
        "a rank ended by SIGTERM",
        partial(
            _mutate,
            causes=[Cause.CRASH],
            # A trainer that catches it would make something else of it.
            end=f"({_DEFAULT.format('SIGTERM')}, {_KILL.format('SIGTERM')})",
            what="is terminated",
            salt=2,
        ),
    ),
    Operator(
        "stopped",
        "a rank stopped by SIGSTOP",
        partial(
            _mutate,
            causes=[Cause.PROCESS_FROZEN],
            end=_KILL.format("SIGSTOP"),
            what="is stopped",
            salt=3,
            has_line=True,
        ),
    ),
    Operator(
        "exit_with_error",
        "a rank that exits with a code, without an exception",
        partial(
            _mutate,
            causes=[Cause.CRASH],
            end="__import__('os')._exit(3)",
            what="exits with code 3",
            salt=1,
        ),
    ),
    Operator(
        "exit_without_error",
        "a rank that ends early, as if all were well",
        partial(
            _mutate,
            # The catalogue has no cause of its own for it: a rank that has left before its peers is
            # away, or has left their loop or what they call out, or has ended badly.
            causes=[
                *(Cause.UNEVEN_INPUTS, Cause.SKIPPED_COLLECTIVE, Cause.MISSING_RANK),
                *(Cause.CRASH, Cause.EXCEPTION),
            ],
            end="__import__('sys').exit(0)",
            what="exits with code 0",
            salt=2,
        ),
    ),
]
