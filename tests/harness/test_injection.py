"""Faults strike once, when the progress file says so, and tell when they could not."""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hanglab.harness.faults.conditions import Operations, ProgressSeen, Steps
from hanglab.harness.faults.death import KillRank
from hanglab.harness.faults.descriptors import FilesProbe
from hanglab.harness.faults.fault import Fault
from hanglab.harness.faults.freeze import Freeze
from hanglab.harness.faults.host_fault import HostFault
from hanglab.harness.faults.injection import Injector
from hanglab.harness.faults.kill import Kill
from hanglab.harness.faults.proof import Reading
from hanglab.harness.faults.terminate import Terminate
from hanglab.harness.hosts import Hosts, ThisMachine
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders, layout
from hanglab.recorder.case.layout import Slot


def write_progress(case: Path, rank: int, step: int, operations: int) -> None:
    """The head of a progress file, as far as conditions read it."""
    folder = folders.rank_folder(case, "host", rank)
    folder.mkdir(parents=True, exist_ok=True)
    slots = [0] * 512
    slots[Slot.MAGIC] = layout.MAGIC
    slots[Slot.VERSION] = layout.VERSION
    slots[Slot.RANK] = rank
    slots[Slot.STEP] = step
    slots[Slot.OPERATIONS_TOTAL] = operations
    (folder / files.PROGRESS.name).write_bytes(struct.pack("<512q", *slots))


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.parametrize("kind", [Kill, Terminate])
def test_a_signal_strikes_at_its_step(
    kind: type[Fault], victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    injector = Injector([kind(rank=1, at_step=5)], tmp_path, 2)
    strike = injector.strikes[0]
    pids = {0: os.getpid(), 1: victim.pid}
    injector.poll(pids, ThisMachine(pids))
    write_progress(tmp_path, 1, 4, 40)
    injector.poll(pids, ThisMachine(pids))
    assert injector.pending
    assert not strike.struck
    write_progress(tmp_path, 1, 6, 60)
    injector.poll(pids, ThisMachine(pids))
    assert not injector.pending
    assert (strike.pid, strike.step, strike.operations) == (victim.pid, 6, 60)
    signals = {Kill: signal.SIGKILL, Terminate: signal.SIGTERM}
    assert victim.wait(280) == -signals[kind]
    injector.close()


def test_freeze_stops_its_process(victim: subprocess.Popen[bytes], tmp_path: Path) -> None:
    fault = Freeze(rank=0, when=Operations(rank=1, at_least=3))
    injector = Injector([fault], tmp_path, 2)
    write_progress(tmp_path, 1, -1, 3)
    injector.poll({0: victim.pid}, ThisMachine({0: victim.pid}))
    assert injector.strikes[0].struck
    _, status = os.waitpid(victim.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    injector.close()


def test_a_rank_that_has_ended_is_not_struck(tmp_path: Path) -> None:
    injector = Injector([Kill(rank=1, at_step=0)], tmp_path, 2)
    write_progress(tmp_path, 1, 3, 3)
    injector.poll({0: os.getpid()}, ThisMachine({0: os.getpid()}))
    strike = injector.strikes[0]
    assert not strike.struck
    assert not injector.pending
    assert "rank 1 had ended" in strike.describe()
    injector.close()


def test_time_counts_from_when_all_ranks_are_there(
    victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    injector = Injector([Kill(rank=0, after_s=0.0)], tmp_path, 2)
    write_progress(tmp_path, 0, -1, 0)
    injector.poll({0: victim.pid}, ThisMachine({0: victim.pid}))
    assert injector.pending
    write_progress(tmp_path, 1, -1, 0)
    injector.poll({0: victim.pid}, ThisMachine({0: victim.pid}))
    assert injector.strikes[0].struck
    injector.close()


def test_damaged_progress_files_are_passed_over(tmp_path: Path) -> None:
    injector = Injector([Kill(rank=0, at_step=0)], tmp_path, 1)
    folder = folders.rank_folder(tmp_path, "host", 0)
    folder.mkdir(parents=True)
    (folder / files.PROGRESS.name).write_bytes(b"short")
    injector.poll({0: os.getpid()}, ThisMachine({0: os.getpid()}))
    assert injector.pending
    injector.close()


def test_conditions() -> None:
    seen = {0: ProgressSeen(step=4, operations=9)}
    assert Steps(0, 4).holds(seen, 0.0)
    assert not Steps(0, 5).holds(seen, 0.0)
    assert not Steps(1, 0).holds(seen, 0.0)
    assert Operations(0, 9).holds(seen, 0.0)
    assert not Operations(0, 10).holds(seen, 0.0)


@pytest.mark.parametrize("moments", [{}, {"at_step": 1, "after_s": 1.0}])
def test_a_fault_has_exactly_one_moment(moments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Freeze(rank=0, **moments)  # type: ignore[arg-type]


#: Opens files up to its limit, and has closed them again when it says so.
FILLS_UP = """\
input()
kept = []
try:
    while True:
        kept.append(open("/dev/null"))
except OSError:
    input()
kept.clear()
print("closed", flush=True)
input()
"""


class TellingProbe(FilesProbe):
    """Tells when it has seen what it looks for."""

    def __init__(self, pid: int, seen: threading.Event) -> None:
        super().__init__(pid)
        self._seen = seen

    def struck(self) -> Reading:
        reading = super().struck()
        if reading.proved:
            self._seen.set()
        return reading


class Unshared(ThisMachine):
    """A machine to which faults may be done, as far as it knows."""

    def of_rank(self, rank: int) -> Any:
        return None


@dataclass(frozen=True, kw_only=True)
class SoonOver(HostFault):
    """A limit that its rank has run into, and left behind, by the time that it is in force."""

    victim: subprocess.Popen[bytes]
    seen: threading.Event = field(default_factory=threading.Event)

    def strike_host(self, hosts: Hosts) -> None:
        assert self.victim.stdin is not None and self.victim.stdout is not None
        resource.prlimit(self.victim.pid, resource.RLIMIT_NOFILE, (24, 24))
        self.victim.stdin.write(b"\n")
        self.victim.stdin.flush()
        self.seen.wait(5.0)
        self.victim.stdin.write(b"\n")
        self.victim.stdin.flush()
        assert self.victim.stdout.readline() == b"closed\n"

    def probe(self, hosts: Hosts) -> FilesProbe:
        return TellingProbe(self.victim.pid, self.seen)


def test_what_happens_while_a_fault_is_being_done_is_seen(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", FILLS_UP], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        injector = Injector([SoonOver(rank=0, at_step=1, victim=process)], tmp_path, 1)
        write_progress(tmp_path, 0, 1, 1)
        injector.poll({0: process.pid}, Unshared({0: process.pid}))
        injector.close()
        process.kill()
    (strike,) = injector.strikes
    assert strike.struck, strike.describe()


def test_no_fault_of_a_host_is_done_to_a_machine_that_others_use(
    victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    injector = Injector([KillRank(rank=0, after_s=0.0)], tmp_path, 1)
    write_progress(tmp_path, 0, 0, 0)
    injector.poll({0: victim.pid}, ThisMachine({0: victim.pid}))
    injector.close()
    assert not injector.strikes[0].struck and not injector.pending
    assert "runs on this machine itself" in injector.strikes[0].describe()
    assert victim.poll() is None
