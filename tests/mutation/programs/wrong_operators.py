"""Operators of a user: one blames an innocent rank, one never strikes, one does no harm."""

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import only_if, preceded, strikes
from hanglab.harness.mutation.truth import truth


def _first(target: MutationTarget):
    return next(one for one in target.statements if target.profile.communicates(one.line))


def blame(target: MutationTarget):
    first = _first(target)
    skipped = {first.node: only_if(first, f"not {strikes(1, 4)}")}
    yield Mutation(first, skipped, 1, truth([Cause.SKIPPED_COLLECTIVE], [2]), "rank 1 skips it")


def never(target: MutationTarget):
    first = _first(target)
    skipped = {first.node: only_if(first, f"not {strikes(1, 10**6)}")}
    yield Mutation(first, skipped, 1, truth([Cause.SKIPPED_COLLECTIVE], [1]), "too late")


def harmless(target: MutationTarget):
    first = _first(target)
    nothing = {first.node: preceded(first, f"{strikes(1, 4)} and None")}
    yield Mutation(first, nothing, 1, truth([Cause.EXCEPTION], [1]), "rank 1 does nothing odd")


OPERATORS = [
    Operator("blames_an_innocent", "a skip by rank 1, said to be by rank 2", blame),
    Operator("never_strikes", "a skip that comes too late", never),
    Operator("harmless", "nothing", harmless),
]
