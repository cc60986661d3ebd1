"""Keys of a store of which each rank sets the one with its own number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from views import job, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.host_waits import host_waits
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import RankCase
from hanglab.recorder.case.records import StoreKeyUse


def awaiting(
    folder: Path, key: str, set_by: Sequence[str], waiter: int, missing: Sequence[int] = ()
) -> CaseFacts:
    """``waiter`` waits for ``key`` in place of its peers' operation; each rank has set one key."""
    views = [
        view(r, user(31), wchan="poll_schedule_timeout") if r == waiter else waiting(r)
        for r in range(len(set_by))
    ]
    for one, mine in zip(views, set_by, strict=True):
        uses = [StoreKeyUse("set", mine)] if mine else []
        if one.rank == waiter:
            uses.append(StoreKeyUse("wait", key, waiting=True))
        own = folder / str(one.rank)
        own.mkdir()
        (own / files.STORE_KEYS.name).write_bytes(msgspec.json.encode(uses))
        one.case = RankCase(own, one.host, one.rank, 0, [])
    facts = job(views, outside=[waiter])
    facts.inputs.missing_ranks = list(missing)
    facts.graph.host_waits = {rank: wait.on for rank, wait in host_waits(facts).items()}
    return facts


@pytest.mark.parametrize("waiter", [0, 3])
@pytest.mark.parametrize(
    ("key", "pattern"),
    [("worker/4/ready/1", "worker/{}/ready/1"), ("1.node9", "1.node{}"), ("7", "{}")],
)
def test_who_waits_for_the_key_of_a_rank_that_is_not_there_waits_for_nobody(
    waiter: int, key: str, pattern: str, tmp_path: Path
) -> None:
    facts = awaiting(tmp_path, key, [pattern.format(rank) for rank in range(4)], waiter)
    verdict = conclude(facts)
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [waiter])
    assert f"waits for the store's key {key!r}, which nobody sets" in verdict.summary


@pytest.mark.parametrize(
    ("key", "set_by"),
    [
        ("ready/2", ["ready/0", "ready/1", "ready/7", "ready/3"]),  # that rank is there
        ("ready/9", ["ready/1", "ready/2", "ready/3", "ready/4"]),  # not by their own numbers
        ("ready/9", ["ready/0", "ready/1", "", "ready/3"]),  # one sets none
        ("begun/9", ["ready/0", "ready/1", "ready/2", "ready/3"]),  # other keys
    ],
)
def test_else_nobody_is_accused(key: str, set_by: list[str], tmp_path: Path) -> None:
    verdict = conclude(awaiting(tmp_path, key, set_by, 3))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])


def test_of_a_rank_without_evidence_nobody_knows_what_it_sets(tmp_path: Path) -> None:
    facts = awaiting(tmp_path, "ready/4", [f"ready/{rank}" for rank in range(4)], 3, [4])
    assert conclude(facts).culprits == []


def told(folder: Path, uses: dict[int, list[StoreKeyUse]]) -> CaseFacts:
    """All wait in the store, for what ``uses`` say, and for nothing else."""
    views = [view(r, user(31 + r), wchan="poll_schedule_timeout") for r in uses]
    for one in views:
        own = folder / str(one.rank)
        own.mkdir()
        (own / files.STORE_KEYS.name).write_bytes(msgspec.json.encode(uses[one.rank]))
        one.case = RankCase(own, one.host, one.rank, 0, [])
    facts = job(views)
    facts.graph.host_waits = {rank: wait.on for rank, wait in host_waits(facts).items()}
    return facts


def rounds(setter: int, key: str, count: int, size: int = 4) -> dict[int, list[StoreKeyUse]]:
    """Rank 0 waits for all to set the keys of the third round, the others for it to go on.

    ``setter`` has set ``key`` last, the ``count``-th of its keys.
    """
    found: dict[int, list[StoreKeyUse]] = {}
    for rank in range(size):
        mine, times = (key, count) if rank == setter else (f"epoch2/ready{rank}", 3)
        found[rank] = [StoreKeyUse("set", mine, earlier=f"epoch1/ready{rank}", count=times)]
        if rank:
            go = StoreKeyUse("wait", "epoch2/go", earlier="epoch1/go", count=3, waiting=True)
            found[rank].append(go)
    found[0].append(StoreKeyUse("set", "epoch1/go", earlier="epoch0/go", count=2))
    awaited = StoreKeyUse("wait", f"epoch2/ready{setter}", count=3, waiting=True)
    return found | {0: [*found[0], awaited]}


@pytest.mark.parametrize("setter", [1, 3])
@pytest.mark.parametrize("key", ["epoch1/ready{}", "epoch7/ready{}"])
def test_who_set_another_key_in_its_turn_keeps_all_waiting(
    setter: int, key: str, tmp_path: Path
) -> None:
    instead = key.format(setter)
    verdict = conclude(told(tmp_path, rounds(setter, instead, 3)))
    assert (verdict.cause, verdict.culprits) == (Cause.PYTHON_DEADLOCK, [setter])
    assert verdict.location is not None and verdict.location.line == 31 + setter
    assert f"set {instead!r} when it was this one's turn" in verdict.summary


def test_whose_turn_is_still_to_come_is_not_accused(tmp_path: Path) -> None:
    """It has set one key fewer, and waits for what would let it go on."""
    verdict = conclude(told(tmp_path, rounds(3, "epoch1/ready3", 2)))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "rank 3 has set those before it" in verdict.summary


def test_where_another_has_set_a_later_key_nobody_knows_the_turn(tmp_path: Path) -> None:
    uses = rounds(3, "epoch1/ready3", 3)
    uses[1][0] = StoreKeyUse("set", "epoch3/ready1", earlier="epoch2/ready1", count=4)
    verdict = conclude(told(tmp_path, uses))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])


def all_keys(size: int, without: int, *, waits: bool = True) -> dict[int, list[StoreKeyUse]]:
    """Each rank but one sets the key with its number; all wait for all of them in one call."""
    keys = [f"shard/{rank}" for rank in range(size)]
    wait = StoreKeyUse("wait", keys[-1], count=1, waiting=True, others=keys[:-1])
    uses = {rank: [StoreKeyUse("set", key), wait] for rank, key in enumerate(keys)}
    uses[without] = [wait] if waits else []
    return uses


@pytest.mark.parametrize("without", [0, 2, 3])
def test_of_several_keys_the_one_that_nobody_set_tells_who_left_it_out(
    without: int, tmp_path: Path
) -> None:
    verdict = conclude(told(tmp_path, all_keys(4, without)))
    assert (verdict.cause, verdict.culprits) == (Cause.PYTHON_DEADLOCK, [without])
    assert f"'shard/{without}', which rank {without} has not set" in verdict.summary


def test_who_has_yet_to_wait_for_its_own_key_may_have_yet_to_set_it(tmp_path: Path) -> None:
    facts = told(tmp_path, all_keys(4, 2, waits=False))
    assert facts.graph.host_waits == {0: (2,), 1: (2,), 3: (2,)}
    assert not any(wait.left_out for wait in host_waits(facts).values())


def test_a_key_of_a_series_that_is_not_kept_whole_is_not_called_unset(tmp_path: Path) -> None:
    """Rank 0 set the keys of nine rounds, of which two are known."""
    wait = StoreKeyUse("wait", "turn/8", count=1, waiting=True, others=["turn/1", "turn/7"])
    series = StoreKeyUse("set", "turn/7", earlier="turn/6", count=8)
    facts = told(tmp_path, {0: [series], 1: [wait], 2: [wait]})
    waits = host_waits(facts)
    assert sorted(waits) == [1, 2]
    assert all("'turn/8'" in wait.words for wait in waits.values())


@pytest.mark.parametrize("waiter", [1, 3])
def test_a_key_in_another_spelling_is_nobodys(waiter: int, tmp_path: Path) -> None:
    set_by = [f"saved/040/by{rank}" for rank in range(4)]
    verdict = conclude(awaiting(tmp_path, "saved/40/by0", set_by, waiter))
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [waiter])
    assert "which nobody sets: 'saved/040/by0' is set" in verdict.evidence[0].detail


def test_who_spells_its_key_unlike_all_others_is_wrong(tmp_path: Path) -> None:
    """Not the one that waits for it."""
    set_by = ["ready/0", "ready/1", "ready/2", "ready/03"]
    assert conclude(awaiting(tmp_path, "ready/3", set_by, 0)).culprits == [3]


def test_of_two_spellings_nobody_knows_the_right_one(tmp_path: Path) -> None:
    verdict = conclude(awaiting(tmp_path, "go/3", ["", "", "", "go/03"], 0))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])


def published(waiters: int, instead: str, waited_at: int = 15) -> dict[int, list[StoreKeyUse]]:
    """Rank 0 alone sets keys, ``instead`` last; so many others wait for the next one."""
    times = [5, 10, 15]
    found = {0: [StoreKeyUse("set", instead, earlier="v/2", count=4, operations=times)]}
    for rank in range(1, 1 + waiters):
        at = [5, 10, waited_at]
        wait = StoreKeyUse("wait", "v/3", earlier="v/2", count=4, operations=at, waiting=True)
        found[rank] = [wait]
    return found


def test_who_alone_sets_keys_and_set_another_in_its_turn_keeps_all_waiting(tmp_path: Path) -> None:
    waits = host_waits(told(tmp_path, published(3, "v/4")))
    assert {rank: wait.on for rank, wait in waits.items()} == {1: (0,), 2: (0,), 3: (0,)}
    assert all("set 'v/4' when it was this one's turn" in wait.words for wait in waits.values())


@pytest.mark.parametrize(
    "uses",
    [
        published(1, "v/4"),  # of two ranks nobody knows which has the key wrong
        published(3, "v/4", waited_at=20),  # of another turn
    ],
)
def test_else_nobody_knows_whose_key_it_is(
    uses: dict[int, list[StoreKeyUse]], tmp_path: Path
) -> None:
    waits = host_waits(told(tmp_path, uses))
    assert all(wait.on == () for wait in waits.values())
    assert all("no one rank is known to set it" in wait.words for wait in waits.values())


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ("plan/10", "waits for the store's key 'plan/010', which nobody sets: 'plan/10' is set"),
        ("", ""),  # who sets it is the only one to tell
        ("plan/11", ""),  # they do not agree on it
    ],
)
def test_a_key_that_others_ask_for_otherwise_in_the_same_turn(
    others: str, told: str, tmp_path: Path
) -> None:
    """All have had the keys of ten turns before; rank 0 sets them, and rank 2 waits."""
    views = [
        view(2, user(31), wchan="poll_schedule_timeout") if r == 2 else waiting(r) for r in range(4)
    ]
    turn = {"earlier": "plan/09", "count": 11}
    for one in views:
        uses = [StoreKeyUse("wait", others, **turn)] if others else []
        if one.rank == 0:
            uses = [StoreKeyUse("set", "plan/10", **turn)]
        if one.rank == 2:
            uses = [StoreKeyUse("wait", "plan/010", **turn, waiting=True)]
        own = tmp_path / str(one.rank)
        own.mkdir()
        (own / files.STORE_KEYS.name).write_bytes(msgspec.json.encode(uses))
        one.case = RankCase(own, one.host, one.rank, 0, [])
    facts = job(views, outside=[2])
    facts.graph.host_waits = {rank: wait.on for rank, wait in host_waits(facts).items()}
    verdict = conclude(facts)
    assert verdict.culprits == ([2] if told else [])
    assert told in verdict.summary
