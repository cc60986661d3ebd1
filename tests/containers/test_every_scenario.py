"""Every scenario with its control, each rank in a container of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(3600)]


def test_containers_change_no_verdict(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hanglab.harness.cli", "run", "--launcher", "docker"]
    done = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True)
    results = json.loads(done.stdout)["results"]
    ran = [result for result in results if result["outcome"] != "skipped"]
    # Those that declare containers themselves are 23.
    assert len({result["scenario"] for result in ran}) > 40
    assert [
        (result["scenario"], result["variant"], result["outcome"], result["reason"])
        for result in ran
        if result["outcome"] != "pass"
    ] == []
    assert done.returncode == 0
