"""Keeping a Case: what is kept gives the same verdict, and says nothing of the machine.

The job is one of gloo; what is done to the files is the same.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import tarfile
import threading
from pathlib import Path
from types import ModuleType

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.harness.jobs.plan import Options, requests_of
from hanglab.harness.jobs.run import run
from hanglab.harness.jobs.run_folder import RunFolder
from hanglab.harness.launchers.local import LocalLauncher
from hanglab.harness.scenarios import discovery

ROOT = Path(__file__).resolve().parents[2]
ABOUT = {"torch": "2.13.0+cu130", "nccl": "2.29.7", "gpu": "NVIDIA L4", "driver": "580"}


def keeper() -> ModuleType:
    path = ROOT / "tests" / "data" / "nccl" / "keep.py"
    spec = importlib.util.spec_from_file_location("keep", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_kept_gives_the_same_verdict(tmp_path: Path) -> None:
    path = ROOT / "scenarios" / "synchronization" / "skipped_collective.py"
    (scenario,) = discovery.read_file(path).scenarios
    request = requests_of(scenario, Options())[0]
    folder = RunFolder(tmp_path / "run").job(scenario.name, "fault", 0)
    launcher = LocalLauncher()
    try:
        result = run(request, folder, launcher, threading.Event())
    finally:
        launcher.close()
    assert result.verdict is not None, result.detail
    kept = keeper().keep(folder.path, tmp_path, ABOUT)
    assert kept.name == "skipped_collective-fault-torch2.13.0-nccl2.29.7-NVIDIA_L4"
    with tarfile.open(kept / "case.tar.gz") as archive:
        archive.extractall(tmp_path)  # made by this test
    again = analyze(tmp_path / "case")
    assert (again.cause, again.culprits) == (result.verdict.cause, result.verdict.culprits)
    assert again.location == result.verdict.location
    assert json.loads((kept / "truth.json").read_bytes())["versions"] == ABOUT
    texts = [file.read_bytes() for file in (tmp_path / "case").rglob("*.json*")]
    texts.append((kept / "truth.json").read_bytes())
    assert texts
    assert not any(str(folder.path).encode() in text for text in texts)
    host = f'"{socket.gethostname()}"'.encode()
    assert not any(host in text for text in texts)
    with pytest.raises(SystemExit, match="exists"):
        keeper().keep(folder.path, tmp_path, ABOUT)


def test_what_is_no_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no job"):
        keeper().keep(tmp_path, tmp_path, ABOUT)
