"""Of tests with many values a few are tried each time, evenly chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from repetitions import mark_all_but_few

TESTS = """
import pytest

@pytest.mark.few(3)
@pytest.mark.parametrize("value", range(10))
def test_repeats(value): pass

@pytest.mark.few(3)
@pytest.mark.parametrize("value", [0, pytest.param(1, marks=pytest.mark.long), 2])
def test_has_as_few(value): pass

@pytest.mark.parametrize("value", range(4))
def test_all(value): pass
"""


class _Collected:
    def __init__(self) -> None:
        self.kept: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        mark_all_but_few(items)
        self.kept = [item.name for item in items if item.get_closest_marker("long") is None]


def test_the_values_that_are_kept_lie_evenly_among_all(tmp_path: Path) -> None:
    (tmp_path / "test_values.py").write_text(TESTS)
    collected = _Collected()
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    pytest.main([str(tmp_path), *options], plugins=[collected])
    repeated = [f"test_repeats[{value}]" for value in (0, 3, 6)]
    kept = ["test_has_as_few[0]", "test_has_as_few[2]"]
    assert collected.kept == [*repeated, *kept, *(f"test_all[{value}]" for value in range(4))]
