"""The injector on containers: what is there at the start, what waits for a step, what is proved."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from hanglab.harness.faults.death import KillRank
from hanglab.harness.faults.full_file_systems import FillDisk
from hanglab.harness.faults.injection import Injector
from hanglab.harness.faults.node_tasks import NodeTasks
from hanglab.harness.faults.port_taken import PortTaken
from hanglab.harness.launchers.docker.hosts import ContainerHosts
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders, layout
from hanglab.recorder.case.layout import Slot

pytestmark = pytest.mark.docker

Make = Callable[..., ContainerHosts]


def write_progress(case: Path, rank: int, step: int) -> None:
    """The head of a progress file, as far as conditions read it."""
    folder = folders.rank_folder(case, "host", rank)
    folder.mkdir(parents=True, exist_ok=True)
    slots = [0] * 512
    slots[Slot.MAGIC], slots[Slot.VERSION] = layout.MAGIC, layout.VERSION
    slots[Slot.RANK], slots[Slot.STEP] = rank, step
    (folder / files.PROGRESS.name).write_bytes(struct.pack("<512q", *slots))


@pytest.mark.stages("outside_processes")
def test_faults_strike_at_their_moment_and_are_taken_back(make_nodes: Make, tmp_path: Path) -> None:
    fault = FillDisk(rank=1, at="/scratch", mebibytes=4, at_step=3)
    nodes = make_nodes("sleep", "sleep", shape=fault.prepare)
    # A limit that nobody comes near is no fault.
    faults = [fault, PortTaken(rank=0), NodeTasks(rank=0, spare=1000, at_step=3)]
    injector = Injector(faults, tmp_path, 2)
    filled, taken, roomy = injector.strikes
    injector.begin(nodes)
    assert taken.at_ns is not None
    pids = {rank: nodes.process_of(rank) for rank in (0, 1)}
    write_progress(tmp_path, 1, 2)
    injector.poll(pids, nodes)
    assert filled.at_ns is None
    for rank in pids:
        write_progress(tmp_path, rank, 3)
    injector.poll(pids, nodes)
    assert not injector.pending
    injector.end(nodes)
    injector.close()
    assert filled.struck and taken.struck and not roomy.struck
    assert "refused" in roomy.describe()
    for strike in (filled, taken):
        assert strike.proof is not None and strike.end_proof is not None
        assert strike.proof.proved and strike.end_proof.proved and not strike.remains
        assert strike.at_ns is not None and strike.ended_ns is not None
        assert strike.at_ns < strike.ended_ns


@pytest.mark.stages("outside_processes")
def test_a_death_is_over_with_its_moment(make_nodes: Make, tmp_path: Path) -> None:
    nodes = make_nodes("sleep")
    injector = Injector([KillRank(rank=0, after_s=0.0)], tmp_path, 1)
    write_progress(tmp_path, 0, 0)
    injector.poll({0: nodes.process_of(0)}, nodes)
    injector.end(nodes)
    injector.close()
    (strike,) = injector.strikes
    assert strike.struck and not strike.remains and strike.ended_ns == strike.at_ns
