"""Kinds of entries that are kept for the dumps of other ranks, and how much of strangers' is."""

from __future__ import annotations

import pickle

import pytest

from hanglab.analyzer.flight_recorder.known_kinds import LONGEST_KEPT, KnownKinds


def entry(number: int, text: str) -> bytes:
    """An entry as Python's pickler writes it, without what is around it."""
    return pickle.dumps({"record_id": number, "profiling_name": text}, 2)[2:-1]


@pytest.mark.parametrize(("size", "kept"), [(100, True), (LONGEST_KEPT + 1, False)])
def test_entries_of_any_length_are_told_apart_and_short_ones_kept(size: int, kept: bool) -> None:
    known = KnownKinds(())
    first, second = (known.of_one(entry(number, "x" * size)) for number in (70000, 70001))
    assert first is not None and second is not None
    assert [one.column for one in first.numbers] == ["record_id"]
    assert first.mask == second.mask
    other = known.of_one(entry(70000, "y" * size))
    assert other is not None and other.mask == first.mask
    assert bool(known.layouts(len(entry(70000, "x" * size)))) is kept
