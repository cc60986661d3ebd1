"""Versions of the code that a run tells: of an installation, and of a checkout with its commit."""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from hanglab.harness.jobs import code_version
from hanglab.harness.scenarios import discovery

PLAIN = metadata.version("hanglab")
SCENARIO = """
from hanglab.harness import Cause, Expect, scenario

@scenario(expect=Expect(Cause.MISSING_RANK, culprits={1}))
def mine(job):
    pass  # FAULT
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(code_version, "_CHECKOUT", tmp_path)
    for room in ("analyzer", "harness", "recorder"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "module.py").write_text("x = 1\n")
    return tmp_path


def version() -> str:
    return code_version.hanglab_version.__wrapped__()


def test_a_checkout_tells_its_commit_and_what_differs(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert version() == PLAIN
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-C", checkout, *identity, *words], check=True)
    clean = version()
    assert re.fullmatch(re.escape(PLAIN) + r"\+g[0-9a-f]{8}", clean)
    found = {clean}
    for text in ("x = 2\n", "x = 3\n"):
        (checkout / "analyzer" / "module.py").write_text(text)
        assert re.fullmatch(re.escape(clean) + r"\.d[0-9a-f]{8}", version())
        found.add(version())
    assert len(found) == 3
    monkeypatch.setenv("PATH", str(checkout))
    assert version() == PLAIN


def test_a_scenario_is_another_one_once_its_file_is(tmp_path: Path) -> None:
    path = tmp_path / "hanglab_mine.py"
    path.write_text(SCENARIO)
    (scenario,) = discovery.read_file(path).scenarios
    first = code_version.scenario_digest(scenario)
    assert first == code_version.scenario_digest(scenario)
    path.write_text(SCENARIO.replace("pass", "return"))
    assert code_version.scenario_digest(scenario) not in (first, None)
    path.unlink()
    assert code_version.scenario_digest(scenario) is None
