"""Old Cases go only where a watch is asked to remove them, and nothing else goes with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from conditions import PATIENCE_S, wait_for

from hanglab.harness.watching.capturing import cases_here
from hanglab.harness.watching.retention import CaseRetention
from hanglab.recorder.case import folders

_DAY_S = 86400.0


def made_case(folder: Path, name: str, age_days: float) -> Path:
    case = folder / name
    folders.make_private(case / "hosts" / "one")
    (case / "manifest.json").write_text("{}")
    then = time.time() - age_days * _DAY_S
    for path in (case / "manifest.json", case / "hosts", case):
        os.utime(path, (then, then))
    return case


def test_old_cases_alone_are_removed(tmp_path: Path) -> None:
    old = made_case(tmp_path, "hanglab-case-20260101-000000", 31.0)
    new = made_case(tmp_path, "hanglab-case-20260102-000000", 29.0)
    written = made_case(tmp_path, "hanglab-case-20260103-000000", 31.0)
    (written / "verdict.json").write_text("{}")
    own = made_case(tmp_path, "my-case", 31.0)
    other = tmp_path / "hanglab-case-notes"
    other.mkdir()
    os.utime(other, (0, 0))
    link = tmp_path / "hanglab-case-link"
    link.symlink_to(own)
    said: list[str] = []
    CaseRetention(tmp_path, 30.0, said.append).look()
    assert said == [f"{old}, older than 30 days, is removed"]
    assert not old.exists()
    assert all(path.exists() for path in (new, written, own, other, link))


def test_nothing_goes_that_is_still_to_be_sent(tmp_path: Path) -> None:
    old = made_case(tmp_path, "hanglab-case-20260101-000000", 31.0)
    unsent = [1]
    retention = CaseRetention(tmp_path, 30.0, lambda text: None, lambda: unsent[0])
    retention.look()
    assert old.exists()
    unsent[0] = 0
    retention.look()
    assert not old.exists()


def test_a_watch_removes_what_is_older_than_it_keeps(tmp_path: Path) -> None:
    out = tmp_path / "cases"
    old = made_case(cases_here(out), "hanglab-case-20260101-000000", 31.0)
    words = ["watch", "--out", out, "--state", tmp_path / "state", "--below", str(os.getpid())]
    watch = subprocess.Popen([sys.executable, "-m", "hanglab.harness.cli", *words, "--keep", "30"])
    try:
        wait_for(lambda: not old.exists(), "the old Case to be gone")
    finally:
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(PATIENCE_S) == 0
