"""Looks at the frames of threads that run on, while garbage is collected as often as can be."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanglab.recorder.rank import thread_frames
from hanglab.recorder.rank.thread_frames import steady_frames

PROGRAM = Path(__file__).parent / "programs" / "collected_program.py"
#: From 3.12 on nothing has to be held off.
HOLDS_OFF = sys.version_info < (3, 12)


@pytest.mark.parametrize("look", ["standing", "lines", "stacks", "shapes", "pending", "waits"])
def test_no_look_ends_the_process(look: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "3", look],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.fixture
def collecting() -> Iterator[None]:
    before = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if before else gc.disable)()


def test_collections_go_on_afterwards(collecting: None) -> None:
    with steady_frames:
        assert gc.isenabled() is not HOLDS_OFF
    assert gc.isenabled()
    with pytest.raises(KeyError), steady_frames:
        raise KeyError
    assert gc.isenabled()


def test_a_walk_inside_of_another_ends_neither(collecting: None) -> None:
    # As when a signal handler of the job asks for a dump in the middle of one.
    with steady_frames:
        with steady_frames:
            pass
        assert gc.isenabled() is not HOLDS_OFF
    assert gc.isenabled()


def test_a_walk_that_was_cut_off_holds_collections_off_no_longer(
    collecting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = thread_frames.SteadyFrames()
    steady.__enter__()
    monkeypatch.setattr(thread_frames, "ABANDONED_S", 0.0)
    with steady:
        pass
    assert gc.isenabled()


def test_a_job_that_collects_by_itself_is_left_alone(collecting: None) -> None:
    gc.disable()
    with steady_frames:
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_child_that_is_forked_meanwhile_collects(collecting: None) -> None:
    with steady_frames:
        pid = os.fork()
        if pid == 0:
            # A second look in the child must not wait for its parent's.
            with steady_frames:
                pass
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
