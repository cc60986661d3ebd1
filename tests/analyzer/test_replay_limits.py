"""Causes that calls do not bring about again: told before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.analyzer.recorded_endings import EndingKind, RecordedEnding
from hanglab.analyzer.replay_limits import reason_outside
from hanglab.analyzer.replayable import NotReplayable, read_replayable
from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.evaluation.cases import default_corpus


def verdict(cause: Cause, *culprits: int) -> Verdict:
    return Verdict(status=Status.HUNG, cause=cause, culprits=list(culprits))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("io_blocked", "io_blocked by rank 1, lies outside of what ranks call. It takes a file"),
        ("oom_killed", "oom_killed by rank 2, lies outside of what ranks call. It takes memory"),
    ],
)
def test_what_a_host_did_is_refused_in_a_sentence(tmp_path: Path, case: str, words: str) -> None:
    unpack_entry(default_corpus(), f"local/{case}.fault", tmp_path / "case")
    with pytest.raises(NotReplayable) as refused:
        read_replayable(tmp_path / "case")
    assert words in str(refused.value) and refused.value.exit_code == 2


def test_every_culprit_needs_an_end_that_a_script_can_do_again() -> None:
    held = {1: RecordedEnding(EndingKind.WAITS_FOR_LOCK)}
    both = verdict(Cause.PYTHON_DEADLOCK, 1, 2)
    reason = reason_outside(both, held, {}, case=True)
    assert reason is not None and "has nothing of rank 2 that a script can do again" in reason
    holder = {2: (RecordedEnding(EndingKind.HOLDS_FILE_LOCK),)}
    assert reason_outside(both, held, holder, case=True) is None
    # A lock is no way to stop a process.
    assert reason_outside(verdict(Cause.PROCESS_FROZEN, 1), held, {}, case=True)
    # Dumps alone tell of no end, and calls decide what they come to.
    assert reason_outside(both, {}, {}, case=False) is None


def test_causes_that_calls_bring_about_need_no_end() -> None:
    for cause in (Cause.GROUP_ORDER, Cause.MISSING_RANK, Cause.SIZE_MISMATCH):
        assert reason_outside(verdict(cause, 1), {}, {}, case=True) is None
