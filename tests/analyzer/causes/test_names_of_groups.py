"""Names of groups, as people read them."""

from __future__ import annotations

import pytest

from hanglab.analyzer.facts.call_wording import name_call, name_group
from hanglab.analyzer.matching.calls import Call, ProcessGroup


@pytest.mark.parametrize(
    ("name", "description", "told", "group_told"),
    [
        ("7", "tp", "tp", "group tp"),
        ("7", "", "7", "group 7"),
        # Two groups of the same ranks are two by their numbers.
        ("7", "undefined", "group 7 of ranks 1 and 3", "group 7 of ranks 1 and 3"),
        ("5d41402abc4b2a76", "undefined", "ranks 1 and 3", "the group of ranks 1 and 3"),
    ],
)
def test_a_group_without_a_description_is_known_by_its_number_and_members(
    name: str, description: str, told: str, group_told: str
) -> None:
    group = ProcessGroup(name, (1, 3), description)
    assert name_group(group) == group_told
    assert name_call(Call(1, group, 36, "broadcast")) == f"broadcast ({told}, number 36)"
