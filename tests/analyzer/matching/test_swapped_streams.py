"""Two groups whose streams one rank entered in another order, while its host ran on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

#: Operation, group and line of the calls of a round, by a letter.
CALLS = {
    "a": ("_allgather_base", "1", 40),
    "b": ("all_reduce", "2", 41),
    "c": ("all_reduce", "0", 42),
}


def finding(odd: int, size: int, rounds: int, mine: str, peers: str, round_: str) -> Finding:
    """All ranks did ``rounds`` of ``round_``; then ``odd`` issued ``mine``, and the rest ``peers``.

    Of what they issued then nothing has finished.
    """
    (found,) = findings([mine if rank == odd else peers for rank in range(size)], rounds, round_)
    return found


def findings(last: Sequence[str], rounds: int, round_: str) -> list[Finding]:
    """All ranks did ``rounds`` of ``round_``, and then each its own of ``last``, which is open."""
    dumps = []
    for rank, own in enumerate(last):
        numbers = Counter[str]()
        rows = []
        order = round_ * rounds + own
        for place, letter in enumerate(order):
            op, group, line = CALLS[letter]
            numbers[group] += 1
            done = place < rounds * len(round_)
            rows.append(Row(op, numbers[group], group, done, line=line))
        members = dict.fromkeys(("0", "1", "2"), range(len(last)))
        dumps.append(columns(rank, rows, members=members))
    return synchronization_findings(build_wait_for_graph(dumps))


@pytest.mark.parametrize(("odd", "size"), [(1, 4), (0, 3), (5, 8)])
@pytest.mark.parametrize(
    ("mine", "peers", "round_"),
    [
        ("baab", "abab", "ab"),
        ("baabab", "ababab", "ab"),
        ("bacabc", "abcabc", "abc"),
    ],
)
def test_calls_that_changed_places_are_no_call_too_many(
    odd: int, size: int, mine: str, peers: str, round_: str
) -> None:
    """The first of them is the last call once more in rounds of two, and what follows is not."""
    found = finding(odd, size, 7, mine, peers, round_)
    assert (found.cause, found.culprits) == (Cause.GROUP_ORDER, [odd])
    assert found.location is not None and found.location.line == CALLS[mine[0]][2]


@pytest.mark.parametrize("mine", ["babab", "baba"])
def test_a_call_too_many_goes_on_as_before(mine: str) -> None:
    found = finding(1, 4, 7, mine, "abab", "ab")
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])


@pytest.mark.parametrize(
    ("before", "now", "harmless"),
    [
        ("abc", ("abc", "cba", "abc"), False),
        ("bac", ("abc", "cba", "abc"), True),
        ("abc", ("abc", "cba", "cab"), True),
    ],
    ids=["one rank's fault", "crossed before", "three orders"],
)
def test_orders_of_the_ranks_own_are_nobodys_fault(
    before: str, now: tuple[str, ...], harmless: bool
) -> None:
    """Rank 1 did ``before`` where the others did abc; nothing of what all issued ``now`` ended."""
    dumps = []
    for rank in range(3):
        rows = [
            Row(CALLS[letter][0], number, CALLS[letter][1], number == 1, line=CALLS[letter][2])
            for number, order in enumerate((before if rank == 1 else "abc", now[rank]), 1)
            for letter in order
        ]
        dumps.append(columns(rank, rows, members=dict.fromkeys(("0", "1", "2"), range(3))))
    graph = build_wait_for_graph(dumps)
    assert not graph.departures
    assert bool(graph.cycles) != harmless


@pytest.mark.parametrize("later", ["ab", ""], ids=["common order since", "nothing since"])
def test_of_what_is_open_alone_a_common_order_since_shows_who_swapped(later: str) -> None:
    """Dumps of what is open: no earlier round tells whether each rank has an order of its own."""
    dumps = []
    for rank in range(3):
        numbers = Counter({"1": 1, "2": 1})
        rows = []
        for letter in ("ba" if rank == 1 else "ab") + later:
            op, group, line = CALLS[letter]
            numbers[group] += 1
            rows.append(Row(op, numbers[group], group, False, line=line))
        members = dict.fromkeys(("1", "2"), range(3))
        status = {1: (numbers["1"], 1), 2: (numbers["2"], 1)}
        dumps.append(columns(rank, rows, members=members, status=status, first_record=2))
    cycles = build_wait_for_graph(dumps).cycles
    assert [cycle.deviating for cycle in cycles] == ([(1,)] if later else [])


@pytest.mark.parametrize(
    ("changed", "size"), [((1, 3), 4), ((0, 1), 4), ((1, 3, 5, 7), 8), ((2, 6), 8)]
)
def test_several_that_leave_the_order_of_the_round_before_are_named(
    changed: tuple[int, ...], size: int
) -> None:
    """Such as the odd ones of two networks' reductions: both went on with what comes behind."""
    last = ["bac" if rank in changed else "abc" for rank in range(size)]
    (found,) = findings(last, 5, "abc")
    assert (found.cause, found.culprits) == (Cause.GROUP_ORDER, [*changed])


def test_of_ranks_that_never_had_a_common_order_none_has_changed_it() -> None:
    """In the first round there is none, and where most go another way it may be the program's."""
    assert findings(["abc", "bac", "abc", "bac"], 0, "abc") == []
    assert findings(["abc", "bac", "bac", "bac", "abc", "bac"], 5, "abc") == []
