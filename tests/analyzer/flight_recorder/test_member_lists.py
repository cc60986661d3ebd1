"""Member lists of large jobs, which every dump of a job repeats: each is read and held once."""

from __future__ import annotations

from hanglab.analyzer.flight_recorder.values import as_ranks


def members(count: int, first: int = 0) -> str:
    """Text of its own for a group, as each dump brings it."""
    return str(list(range(first, first + count)))


def test_the_same_list_in_many_dumps_is_held_once() -> None:
    groups = [(count, first) for count in (8, 512, 8192) for first in range(0, 8 * count, count)]
    kept = [as_ranks(members(*group)) for group in groups]
    again = [as_ranks(members(*group)) for group in groups]
    assert all(one is other for one, other in zip(kept, again, strict=True))
    assert kept[0] == tuple(range(8))


def test_the_list_of_all_ranks_of_a_very_large_job_outlives_those_of_its_groups() -> None:
    text = members(100_240)
    everybody = as_ranks(text)
    assert everybody == tuple(range(100_240))
    for first in range(0, 100_240, 1024):
        as_ranks(members(1024, first))
    copy = members(100_240)
    assert copy is not text
    assert as_ranks(copy) is everybody


def test_lists_that_no_job_has_are_not_held() -> None:
    # A stranger's dump would else hold that memory for as long as the process lives.
    absurd = members(300_000)
    assert as_ranks(absurd) == as_ranks(members(300_000))
    assert as_ranks(absurd) is not as_ranks(members(300_000))
