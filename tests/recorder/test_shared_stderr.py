"""A file that several ranks have for their standard error is none of theirs alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from recorder_support import short_folder

from hanglab.recorder.agent.capture import Capture
from hanglab.recorder.agent.stderr_files import stderr_file
from hanglab.recorder.agent.watched_rank import WatchedRank, find_ranks
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.rank import process

WAITS = "import sys\nprint('Traceback', file=sys.stderr, flush=True)\nsys.stdin.read()"


class Ranks:
    """Processes that write to the named files of ``folder`` and wait."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._case = folder / "case"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *logs: str) -> list[WatchedRank]:
        for rank, log in enumerate(logs):
            file = self._stack.enter_context((self._folder / log).open("ab"))
            child = subprocess.Popen(
                [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stderr=file
            )
            self._stack.callback(self._end, child)
            self.processes.append(child)
            folder = folders.make_private(folders.rank_folder(self._case, "host", rank))
            description = {**process.description(rank, len(logs), rank, 0), "pid": child.pid}
            folders.write_whole(folder / files.PROCESS.name, json.dumps(description).encode())
        while sum((self._folder / log).read_text().count("\n") for log in set(logs)) < len(logs):
            assert all(child.poll() is None for child in self.processes)
        return find_ranks(folders.host_folder(self._case, "host"), set())

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        child.communicate()

    def stderr(self) -> tuple[list[str], str]:
        """What is credited to each rank, and to the host."""
        host = folders.host_folder(self._case, "host") / files.STDERR.name
        ranks = [rank.read(files.STDERR) for rank in CaseReader(self._case).ranks]
        return ranks, host.read_text() if host.exists() else ""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    with ExitStack() as stack:
        yield Ranks(tmp_path, stack)


@pytest.fixture
def capture() -> Iterator[Capture]:
    with short_folder() as runtime:
        yield Capture("host", runtime)


def test_what_is_shared_is_kept_once_for_the_host(ranks: Ranks, capture: Capture) -> None:
    capture.take(ranks.start("log", "log", "own"))
    assert ranks.stderr() == (["", "", "Traceback\n"], "Traceback\nTraceback\n")


def test_files_of_their_own_are_credited_to_the_ranks(ranks: Ranks, capture: Capture) -> None:
    capture.take(ranks.start("one", "two"))
    assert ranks.stderr() == (["Traceback\n", "Traceback\n"], "")


def test_what_was_shared_with_a_rank_that_has_gone_is_not_the_other_s(
    ranks: Ranks, capture: Capture
) -> None:
    first, second = ranks.start("log", "log")
    ranks.processes[0].kill()
    ranks.processes[0].wait()
    capture.take([second], None, [first])
    assert ranks.stderr() == (["", ""], "Traceback\nTraceback\n")


def test_a_pipe_is_no_file_of_its_own() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert stderr_file(child.pid) is None
        child.communicate(b"")
    assert stderr_file(os.getpid()) is None or Path("/proc/self/fd/2").is_file()


@pytest.mark.parametrize("logs", [("one", "two"), ("log", "log")])
def test_what_a_rank_wrote_before_it_ended_is_kept_if_it_is_its_own(
    ranks: Ranks, capture: Capture, logs: tuple[str, str]
) -> None:
    """A launcher's files outlive the ranks that fail, and nothing was captured before."""
    found = ranks.start(*logs)
    for child in ranks.processes:
        child.kill()
        child.wait()
    capture.keep_stderr_of_gone(found)
    own = "Traceback\n" if logs[0] != logs[1] else ""
    assert ranks.stderr() == ([own, own], "")


def test_another_file_in_its_place_is_not_what_it_wrote(
    ranks: Ranks, capture: Capture, tmp_path: Path
) -> None:
    found = ranks.start("one")
    ranks.processes[0].kill()
    ranks.processes[0].wait()
    (tmp_path / "one").rename(tmp_path / "old")
    (tmp_path / "one").write_text("somebody else's\n")
    capture.keep_stderr_of_gone(found)
    assert ranks.stderr() == ([""], "")
