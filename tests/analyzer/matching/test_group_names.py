"""Groups whose members know them by different names, as one created a group more before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

#: Name to members, of each rank.
Groups = Sequence[Mapping[str, Sequence[int]]]


def everybodys(size: int, *odd: int) -> list[dict[str, list[int]]]:
    """Two groups of all; those of ``odd`` ranks bear the next number."""
    members = list(range(size))
    return [
        {"0": members, "2" if rank in odd else "1": members, "3" if rank in odd else "2": members}
        for rank in range(size)
    ]


def findings(rows: Mapping[int, list[Row]], groups: Groups) -> list[Finding]:
    dumps = [columns(rank, mine, members=groups[rank]) for rank, mine in rows.items()]
    return synchronization_findings(build_wait_for_graph(dumps))


def message(kind: str, source: int, target: int, group: str) -> Row:
    arrow = f"{source}->{target}" if kind == "send" else f"{target}<-{source}"
    return Row(f"{kind} {arrow}", 0, group, done=False, p2p_seq=1)


def waiting(name: str) -> list[Row]:
    return [Row("all_reduce", 1, name, done=False)]


@pytest.mark.parametrize("odd", [0, 1])
def test_a_message_in_a_group_that_one_rank_names_otherwise(odd: int) -> None:
    groups = everybodys(3, odd)
    names = ["2" if rank == odd else "1" for rank in range(3)]
    (found,) = findings(
        {
            0: [message("send", 0, 1, names[0])],
            1: [message("recv", 0, 1, names[1])],
            2: [Row("all_reduce", 1, done=False)],
        },
        groups,
    )
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [odd])
    assert found.confidence > 0.5


@pytest.mark.parametrize("odd", [0, 3])
def test_a_collective_in_a_group_that_one_rank_names_otherwise(odd: int) -> None:
    """It enters by the name of its peers' second group what is its first."""
    (found,) = findings(
        {rank: waiting("2" if rank == odd else "1") for rank in range(4)}, everybodys(4, odd)
    )
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [odd])
    assert found.victims == [rank for rank in range(4) if rank != odd]


def test_of_two_either_may_have_created_another_group() -> None:
    (found,) = findings({0: waiting("2"), 1: waiting("1")}, everybodys(2, 0))
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [0, 1])
    assert found.confidence <= 0.5


def test_of_two_one_that_waits_nowhere_yet_accuses_neither() -> None:
    assert not findings({0: waiting("2"), 1: [Row("all_reduce", 1)]}, everybodys(2, 0))


def test_of_two_the_one_that_gives_its_group_the_name_of_others() -> None:
    everybody = {"0": [0, 1, 2, 3]}
    groups = [
        {**everybody, "1": [0, 2]},
        {**everybody, "2": [1, 3], "3": [1]},
        {**everybody, "1": [0, 2], "5": [2]},
        {**everybody, "3": [1, 3], "5": [3]},
    ]
    (found,) = findings({1: waiting("2"), 3: waiting("3"), 0: [], 2: []}, groups)
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [3])


def test_a_rank_that_has_yet_to_create_a_group_names_none_otherwise() -> None:
    members = [0, 1, 2]
    groups = [{"0": members, "1": members}, {"0": members, "1": members}, {"0": members}]
    (found,) = findings(
        {0: waiting("1"), 1: waiting("1"), 2: [Row("all_reduce", 1, done=False)]}, groups
    )
    assert found.cause is not Cause.GROUP_CREATION


def test_a_group_that_nobody_uses_holds_nobody_up() -> None:
    groups = everybodys(3, 1)
    rows = [Row("all_reduce", 1), Row("all_reduce", 2, done=False)]
    (found,) = findings({0: rows, 1: rows, 2: rows[:1]}, groups)
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [2])


def test_names_under_which_ranks_met_before_are_of_one_group() -> None:
    """Some versions number groups on each rank: what finished there had all members in it."""
    groups = everybodys(3, 1)
    rows = {
        rank: [Row("all_reduce", 1, name), Row("all_reduce", 2, name, done=False)]
        for rank, name in enumerate(("1", "2", "1"))
    }
    assert all(one.cause is not Cause.GROUP_CREATION for one in findings(rows, groups))


def beside_nccl(
    names: Sequence[str | None], *, done: bool = False, of_all: bool = False
) -> list[Finding]:
    """Each rank in a gloo group of that name, whose members no dump lists; None: it left no dump.

    ``of_all``: what it gathers is as much as all ranks give.
    """
    described = {name: "control" for name in names if name}
    return synchronization_findings(
        build_wait_for_graph(
            columns(
                rank,
                [
                    Row("all_reduce", 1),
                    *(
                        Row(
                            "",
                            1,
                            name,
                            done=done,
                            outputs=((4 * len(names),),) if of_all else None,
                            extra={"profiling_name": "gloo:all_gather"},
                        )
                        for name in ([name] if name else [])
                    ),
                ],
                members={"0": range(len(names))},
                descriptions=described,
            )
            for rank, name in enumerate(names)
            if name is not None
        )
    )


@pytest.mark.parametrize("odd", [0, 2, 4])
def test_nobody_waits_in_a_gloo_group_by_itself(odd: int) -> None:
    (found,) = beside_nccl(["2" if rank == odd else "1" for rank in range(5)])
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [odd])
    assert found.victims == [rank for rank in range(5) if rank != odd]


def test_of_two_alone_in_gloo_groups_either_may_be_wrong() -> None:
    (found,) = beside_nccl(["1", "2"])
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [0, 1])


@pytest.mark.parametrize(
    "names",
    [
        ("1", "1", "2", "2"),  # two groups of pairs
        ("1", "1", "2", ""),  # the peer of rank 2 has yet to come
        ("1", "1", "2", "3"),  # rank 2 or rank 3 has made a group more
    ],
)
def test_who_has_or_may_have_peers_in_a_gloo_group_has_no_wrong_name(names: Sequence[str]) -> None:
    assert all(one.cause is not Cause.GROUP_CREATION for one in beside_nccl(names))


def test_most_of_a_group_of_all_wait_by_one_name_though_one_has_yet_to_come() -> None:
    (found,) = beside_nccl(["1", "1", "1", "2", ""], of_all=True)
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [3])
    assert not beside_nccl(["1", "1", "2", "", ""], of_all=True)


def test_two_names_of_one_group_are_no_order_of_groups() -> None:
    """Ranks 2 and 3 would tell whose name is wrong."""
    assert not beside_nccl(["1", "2", None, None], of_all=True)


def test_two_of_four_that_agree_are_no_majority() -> None:
    """How many groups a rank makes may follow what it reads, so that two agree by chance."""
    members = range(4)
    names = [("1", "3"), ("1", "2"), ("2", "3"), ("1", "2")]
    (found,) = findings(
        {rank: waiting(last) for rank, (_, last) in enumerate(names)},
        [{"0": members, **dict.fromkeys(mine, members)} for mine in names],
    )
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [0, 1, 2, 3])


def test_a_rank_that_names_a_group_as_others_do_theirs_tells_nothing_of_another_group() -> None:
    """Ranks 3 and 5 call their common group alike; rank 5 has made a group more before."""
    everybody, last = range(6), [1, 3, 5]
    groups = [
        {"0": everybody, "1": [0, 1], "4": [0, 2, 4]},
        {"0": everybody, "1": [0, 1], "5": last},
        {"0": everybody, "2": [2, 3], "4": [0, 2, 4]},
        {"0": everybody, "2": [2, 3], "6": last},
        {"0": everybody, "3": [4, 5], "4": [0, 2, 4]},
        {"0": everybody, "4": [4, 5], "6": last},
    ]
    found = findings(
        {0: [], 1: waiting("5"), 2: [], 3: waiting("6"), 4: waiting("3"), 5: waiting("4")}, groups
    )
    assert {rank for one in found for rank in one.culprits} == {5}
