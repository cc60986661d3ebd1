"""Work after a capture: Cases sent to a store, by a real command, and again where it is away."""

from __future__ import annotations

from pathlib import Path

import pytest
from conditions import wait_for

from hanglab.harness.watching.followups import Followups


@pytest.fixture
def case(tmp_path: Path) -> Path:
    from hanglab.recorder.case import folders

    whole = tmp_path / "case"
    folders.make_private(whole / "hosts" / "one")
    (whole / "manifest.json").write_text("{}")
    return whole


def test_a_store_that_is_away_gets_the_case_once_it_is_back(tmp_path: Path, case: Path) -> None:
    said: list[str] = []
    followups = Followups(said.append, again_s=0.1)
    try:
        away = tmp_path / "bucket"
        away.write_text("a file where the store's folder should be")
        followups.add("upload", str(case), f"file://{away}/case")
        wait_for(lambda: said, "the failure to be said")
        assert "hanglab upload did not succeed, and is tried again: " in said[0]
        assert "did not get to" in said[0] and "Nothing is lost" not in said[0]
        away.unlink()
        wait_for(lambda: followups.pending == 0, "the Case to be sent")
        assert (away / "case" / "manifest.json").is_file()
    finally:
        followups.close()
    assert not any("left undone" in words for words in said)


def test_what_could_not_be_sent_is_said_at_the_end(tmp_path: Path, case: Path) -> None:
    said: list[str] = []
    followups = Followups(said.append, again_s=3600.0)
    (tmp_path / "bucket").touch()
    followups.add("upload", str(case), f"file://{tmp_path}/bucket/case")
    wait_for(lambda: said, "the failure to be said")
    followups.close()
    assert said[-1] == f"left undone: hanglab upload {case} file://{tmp_path}/bucket/case"
