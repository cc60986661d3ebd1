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
