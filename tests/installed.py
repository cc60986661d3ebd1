"""Marks of tests that need a package, which is not imported to know that it is there.

Every worker collects all tests before it runs its first, and torch alone takes
longer to import than all of them.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(package: str, remedy: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}: {remedy}")


needs_torch = needs("torch", "pip install hanglab[run]")
