from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files of its own, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
