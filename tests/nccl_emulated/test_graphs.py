"""CUDA graphs on the emulated device: operations captured once and replayed."""

from __future__ import annotations

from typing import Any

import pytest
from emulated_support import Ended, Run
from installed import needs_torch

pytestmark = needs_torch


def _told(ended: list[Ended]) -> list[dict[str, Any]]:
    for one in ended:
        assert one.code == 0, one.stderr
    return [one.told for one in ended]


@pytest.mark.slow
def test_what_is_captured_runs_at_each_replay_and_leaves_no_entry(run_ranks: Run) -> None:
    for told in _told(run_ranks("graphs.py", "replays", 2)):
        assert told["captured"] == [0.0] * 4
        assert told["three"] == [3 * 2 * (1.0 + 2.0)] * 4
        assert told["four"] == [18.0 + 2 * (10.0 + 10.0)] * 4
        assert told["entries"] == told["entries_after"] == 1
        assert told["error"] == "CUDA error: operation not permitted when stream is capturing"
        assert told["capturing"] is False


def test_replays_of_different_counts_hang_without_an_open_entry(run_ranks: Run) -> None:
    first, second = _told(run_ranks("graphs.py", "counts_differ", 2))
    assert first == {"blocked": True, "new_entries": 0}
    assert second == {"blocked": False, "new_entries": 0, "total": [12.0] * 4}
