"""Tests with many values: `.ci/run` tries a few of them, `make test-long` the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def mark_all_but_few(items: Sequence[pytest.Item]) -> None:
    """Mark values of tests marked ``few(n)`` as ``long``, but for n that lie evenly among them.

    Those that are ``long`` by themselves do not count.
    """
    repeated: dict[str, list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("few")
        if marker is not None and item.get_closest_marker("long") is None:
            name, _, _ = item.nodeid.partition("[")
            repeated.setdefault(name, []).append(item)
    for values in repeated.values():
        marker = values[0].get_closest_marker("few")
        assert marker is not None
        (count,) = marker.args
        kept = {number * len(values) // count for number in range(count)}
        for number, item in enumerate(values):
            if number not in kept:
                item.add_marker(pytest.mark.long)
