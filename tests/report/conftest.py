"""A browser for the tests of pages, where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pages import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium without a window, driven by playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = chromium()
    if program is None:
        pytest.skip("there is no chromium (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        # Without its sandbox: containers give it no user namespaces, and pages are our own.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()
