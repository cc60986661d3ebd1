"""Ranks of which one waits in a call that makes a group, and the other does not."""

from __future__ import annotations

import pytest

from hanglab.analyzer.branching.call_sites import CallHistory, ProgramCall
from hanglab.analyzer.branching.partings import parting_of
from hanglab.analyzer.branching.program_graph import Chain, ProgramPlace


def at(line: int) -> Chain:
    return (ProgramPlace("train.py", "main", line),)


def history(rank: int, lines: list[int], now: int, waits: bool, made: int | None) -> CallHistory:
    calls = [ProgramCall(at(line), True, ("0", i), True) for i, line in enumerate(lines)]
    return CallHistory(rank, calls, True, at(now), waits, False, made)


@pytest.mark.parametrize(
    ("mine", "theirs", "parted"),
    [
        (2, 3, True),
        (0, 1, True),
        # Who made as many has been where the other one is: by other groups they differ.
        (3, 3, False),
        (4, 3, False),
        # Their rings may have lost some.
        (None, 3, False),
        (2, None, False),
    ],
)
def test_who_made_as_many_groups_left_none_out(
    mine: int | None, theirs: int | None, parted: bool
) -> None:
    gone = history(3, [10, 30], 30, False, mine)
    waiting = history(0, [10], 20, True, theirs)
    found = parting_of(gone, waiting, False)
    assert (found is not None) is parted
    if found is not None:
        assert (found.mine, found.theirs.chain) == (at(30), at(20))
