"""The layers: who may import whom, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_packages_keep_to_their_layers() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    checked = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "module",
    [
        "hanglab.harness",
        "hanglab.harness.cli.app",
        "hanglab.harness.scenarios.discovery",
        "hanglab.analyzer.engine",
        "hanglab.recorder",
        "hanglab.recorder.agent",
    ],
)
def test_importing_it_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_for_scenario_authors_are_all_there() -> None:
    from hanglab import harness

    for name in harness.__all__:
        assert getattr(harness, name) is not None
    with pytest.raises(AttributeError):
        _ = harness.no_such_name
