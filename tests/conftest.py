"""Tests say by the plugin's markers what they need, and are skipped where it is missing."""

from __future__ import annotations

import pytest

from hanglab.harness.pytest_plugin.markers import skip_unless_able


def pytest_runtest_setup(item: pytest.Item) -> None:
    skip_unless_able(item)
