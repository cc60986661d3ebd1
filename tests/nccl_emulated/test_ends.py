"""Scripts on the emulated device that end by themselves, without shutting their groups down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from emulated_support import PROGRAMS
from installed import needs_torch


@pytest.mark.slow
@needs_torch
def test_a_script_ends_while_its_watchdog_asks_the_store(tmp_path: Path) -> None:
    """A daemon thread that comes back from C++ into an interpreter that ends aborts the process."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "ends_by_itself.py"), str(tmp_path / f"store{number}")],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for process in processes:
        _, said = process.communicate(timeout=280)
        assert (process.returncode, said) == (0, "")
