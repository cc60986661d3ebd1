"""Shards, and the order in which scenarios run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hanglab.harness.jobs.shard import Shard
from hanglab.harness.pytest_plugin.items import ScenarioItem

#: Seconds for an item that has never run: about what most take.
_UNKNOWN_S = 4.0


def leave_out(items: list[pytest.Item], shard: Shard | None) -> list[pytest.Item]:
    """Takes the scenarios of other shards from ``items``, and gives them back.

    Dealt out by name in turns, so that all machines agree without talking, and
    a fault lies with its control.  Tests that are no scenarios stay in every shard.
    """
    if shard is None:
        return []
    mine = shard.share_of(_scenario(item) for item in items if isinstance(item, ScenarioItem))
    left_out: list[pytest.Item] = [
        item for item in items if isinstance(item, ScenarioItem) and _scenario(item) not in mine
    ]
    if left_out:
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    return left_out


def _scenario(item: ScenarioItem) -> str:
    return item.asked.scenario.name


def longest_first(items: list[pytest.Item], durations: Mapping[str, float]) -> None:
    """Puts scenarios first, those that took longest before the others.

    So the end of a run is filled with short ones, and no worker is left alone
    with a long one.
    """

    def rank(item: pytest.Item) -> float:
        if not isinstance(item, ScenarioItem):
            return 0.0
        return -durations.get(item.lasting_name, _UNKNOWN_S)

    items.sort(key=rank)
