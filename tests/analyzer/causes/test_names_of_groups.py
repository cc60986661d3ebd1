"""Names of groups, as people read them."""

from __future__ import annotations

import pytest

from hanglab.analyzer.facts.call_wording import name_call
from hanglab.analyzer.matching.calls import Call, ProcessGroup


@pytest.mark.parametrize(
    ("description", "told"),
    [("tp", "tp"), ("", "7"), ("undefined", "ranks 1 and 3")],
)
def test_a_group_without_a_description_is_known_by_its_members(description: str, told: str) -> None:
    group = ProcessGroup("7", (1, 3), description)
    assert name_call(Call(1, group, 36, "broadcast")) == f"broadcast ({told}, number 36)"
