"""Votes on a call from another line, of members that leave the common order themselves."""

from __future__ import annotations

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.matching.calls import Difference, Divergence, UnknownCall


def divergences_of(*lines: str, first: int = 1, ended: int = 1) -> list[Divergence]:
    """One group's reductions, from lines by their letters, of which the first ``ended`` have.

    A rank of which no line is known has blanks.
    """
    dumps = []
    for rank, mine in enumerate(lines):
        rows = [
            Row("all_reduce", number, done=number < first + ended, line=ord(line.strip() or "\0"))
            for number, line in enumerate(mine, start=first)
        ]
        status = {0: (first + len(mine) - 1, first + ended - 1)}
        dumps.append(
            columns(rank, rows, members=world(len(lines)), status=status, first_record=first - 1)
        )
    return build_wait_for_graph(dumps).divergences


def test_a_member_that_leaves_the_order_later_has_its_vote() -> None:
    """Rank 2 called a twice; rank 1, which did as 0 and 3 did there, left one out behind it."""
    (found,) = divergences_of("abababab", "abaabab", "aabababab", "abababab")
    assert (found.seq, found.deviating) == (2, (2,))


def test_lines_that_met_before_shift_nothing() -> None:
    """Rank 1 has called b where the others called a, and all went on."""
    assert divergences_of("abab", "babab", "aabab", first=3) == []


def test_a_member_of_which_no_line_is_known_may_have_called_from_either() -> None:
    (found,) = divergences_of("abab", "    ", "aabab", first=3)
    assert found.undecided and found.unknown_calls == {1: UnknownCall.UNLINED}


def pair_of(mine: list[int], theirs: list[int]) -> Divergence:
    """Reductions of these sizes from one line, of which none has ended and rings hold the last."""
    dumps = []
    for rank, sizes in enumerate((mine, theirs)):
        rows = [
            Row("all_reduce", number, done=False, inputs=((size,),), line=7)
            for number, size in enumerate(sizes, start=9)
        ]
        status = {0: (8 + len(sizes), 8)}
        dumps.append(columns(rank, rows, members=world(2), status=status, first_record=40))
    (found,) = build_wait_for_graph(dumps).divergences
    return found


def test_calls_that_fit_one_number_on_are_other_operations() -> None:
    """One of the two made one call more before; neither gave a wrong size."""
    for mine, theirs in (([64, 32, 16], [128, 64, 32, 16]), ([128, 64, 32], [64, 32])):
        assert pair_of(mine, theirs).difference is Difference.OPERATION
        assert pair_of(theirs, mine).difference is Difference.OPERATION


def test_another_size_alone_shifts_nothing() -> None:
    assert pair_of([96, 64, 32], [128, 64, 32]).difference is Difference.SIZE
    assert pair_of([64, 128, 64], [128, 128, 64]).difference is Difference.SIZE
    assert pair_of([64, 32], [128, 64]).difference is Difference.SIZE  # One call tells too little.


@pytest.mark.parametrize("known", [True, False])
def test_a_vote_is_no_other_rank_for_that_neither_has_lines(known: bool) -> None:
    """Rank 1's buffer has lost number 1; behind it both others called what it did, one unlined."""
    rows = [
        [
            Row(
                "all_reduce", number, done=False,
                extra={"input_dtypes": ["Half"]} if (rank, number) == (0, 1) else {},
                line=7 if rank == 2 or known else None,
            )
            for number in (1, 2)
            if (rank, number) != (1, 1)
        ]
        for rank in range(3)
    ]  # fmt: skip
    dumps = [
        columns(rank, mine, members=world(3), status={0: (2, 0)}, first_record=int(rank == 1))
        for rank, mine in enumerate(rows)
    ]
    (found,) = build_wait_for_graph(dumps).divergences
    assert found.difference is Difference.DTYPE
    assert found.deviating == ()


def test_a_shift_behind_an_open_call_holds_nobody() -> None:
    """All are in number 1: what is queued behind it has not met yet."""
    lines = ("abababab", "abababab", "aabababab")
    assert [one.deviating for one in divergences_of(*lines)] == [(2,)]
    assert divergences_of(*lines, ended=0) == []


def test_rounds_of_another_branch_are_no_shift() -> None:
    """Who has no data left shadows the others' reductions from a line of its own, and so do all
    in the end: behind the numbers at which one of them did not they agree without a shift."""
    assert divergences_of("aaaaabbbbbb", "aabbbbbbbbb", "aabbbbbbbbb", ended=10) == []
