"""Lists shrunk to what fails."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from hanglab.analyzer.program.delta_debugging import ddmin


@settings(deadline=None)
@given(st.integers(1, 60), st.sets(st.integers(0, 59), min_size=1, max_size=6))
def test_what_fails_alone_is_all_that_is_left(length: int, needed: set[int]) -> None:
    wanted = {place % length for place in needed}
    asked: list[tuple[int, ...]] = []

    def fails(kept: Sequence[int]) -> bool:
        asked.append(tuple(kept))
        return wanted <= set(kept)

    assert ddmin(range(length), fails) == sorted(wanted)
    assert len(asked) == len(set(asked))


@settings(deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30))
def test_of_the_rest_no_item_can_go(items: list[int]) -> None:
    def fails(kept: Sequence[int]) -> bool:
        return sum(kept) % 7 == sum(items) % 7

    left = ddmin(items, fails)
    assert fails(left)
    assert not left or not any(fails([*left[:n], *left[n + 1 :]]) for n in range(len(left)))


def test_nothing_is_left_where_nothing_is_needed() -> None:
    assert ddmin([1, 2, 3], lambda kept: True) == []
