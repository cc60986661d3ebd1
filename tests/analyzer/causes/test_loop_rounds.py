"""Rounds of loops that nobody counts but the record of a rank's branches."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from test_program_order import at, differing

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import RankCase

FILE = b"/home/me/train.py"
#: Where the loop of these views begins.
LOOP = 15


def recorded(one: RankView, folder: Path, rounds: int, *, lost: int = 0) -> RankView:
    """With the branches of so many rounds of the loop, of which the ring has ``lost`` some."""
    records = [(n, layout.way(0, LOOP, 4, layout.LOOP_AGAIN)) for n in range(rounds - lost)]
    capacity = len(records) if lost else len(records) + 1
    slots = (layout.MAGIC, layout.VERSION, rounds, capacity, 8 + len(FILE), 0, 0, 0)
    ring = b"".join(struct.pack("<2q", *one) for one in records).ljust(capacity * 16, b"\0")
    own = folder / str(one.rank)
    own.mkdir()
    texts = struct.pack("<q", len(FILE)) + FILE
    (own / files.BRANCHES.name).write_bytes(struct.pack("<8q", *slots) + ring + texts)
    one.case = RankCase(own, one.host, one.rank, 0, [])
    return one


@pytest.mark.parametrize(
    ("mine", "theirs", "cause"),
    [
        (30, 30, Cause.SKIPPED_COLLECTIVE),
        (30, 29, Cause.SKIPPED_COLLECTIVE),
        (29, 30, Cause.UNEVEN_INPUTS),
    ],
)
def test_rounds_tell_fewer_inputs_from_a_round_without_its_operations(
    tmp_path: Path, mine: int, theirs: int, cause: Cause
) -> None:
    peers = [recorded(at(rank, 20, None), tmp_path, theirs) for rank in range(3)]
    verdict = conclude(differing([*peers, recorded(at(3, 30, None), tmp_path, mine)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])
    assert f"{mine} rounds of the loop of line {LOOP}, its peers {theirs} or more" in (
        verdict.summary
    )


@pytest.mark.parametrize("whose", ["mine", "theirs"])
def test_rounds_of_a_ring_that_lost_some_count_nothing(tmp_path: Path, whose: str) -> None:
    lost = {"mine": (3, 0), "theirs": (0, 3)}[whose]
    peers = [recorded(at(r, 20, None), tmp_path, 30, lost=lost[1]) for r in range(3)]
    mine = recorded(at(3, 30, None), tmp_path, 30, lost=lost[0])
    verdict = conclude(differing([*peers, mine]))
    assert (verdict.cause, verdict.culprits) == (Cause.UNEVEN_INPUTS, [3])
    assert "by the operations that it did there" in verdict.summary
