"""Backends made by their own constructors: their operations count, and say who takes part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import needs_torch

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress import read_progress
from hanglab.recorder.case.reader import CaseReader, RankCase
from hanglab.recorder.rank import hook_dir
from hanglab.recorder.rank.bare_backends import Backends
from hanglab.recorder.rank.boundary import Boundary
from hanglab.recorder.rank.call_site import CallSites
from hanglab.recorder.rank.group_members import GroupMembers
from hanglab.recorder.rank.progress_file import ProgressFile

pytestmark = needs_torch

PROGRAM = """
import datetime, sys, torch, torch.distributed as dist

def backend(rank, size):
    return dist.ProcessGroupGloo(store, rank, size, datetime.timedelta(seconds=60))

store = dist.HashStore()
one = backend(0, 1)
one.allreduce([tensor := torch.full((3,), 2.0)]).wait()
one.broadcast([tensor], dist.BroadcastOptions()).wait()
"""
IN_A_GROUP = """
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(tensor)
inner = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
inner.allreduce([tensor]).wait()
"""


def recorded(tmp_path: Path, text: str, world_size: int) -> RankCase:
    script = tmp_path / "train.py"
    script.write_text(text + "print(tensor.tolist())")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANGLAB_")}
    case = {"HANGLAB_CASE": str(tmp_path / "case"), "PYTHONPATH": str(hook_dir())}
    job = {"RANK": "0", "WORLD_SIZE": str(world_size), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, script],
        env={**kept, **job, **case, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[2.0, 2.0, 2.0]\n"), done.stderr
    (rank,) = CaseReader(tmp_path / "case").ranks
    return rank


@pytest.mark.slow
def test_operations_are_recorded_like_those_of_groups(tmp_path: Path) -> None:
    rank = recorded(tmp_path, PROGRAM, 1)
    assert rank.read(files.PROGRESS) is not None
    found = [(o.method, o.group, o.completed, o.line) for o in rank.read(files.PROGRESS).operations]
    assert found == [("allreduce", "", True, 9), ("broadcast", "", True, 10)]
    assert [o.shape for o in rank.read(files.PROGRESS).operations] == [(3,), (3,)]
    (group,) = rank.read(files.GROUPS)
    assert (group.id, group.ranks, group.backend) == ("", [0], "gloo")


def test_members_are_told_only_where_they_are_known(tmp_path: Path) -> None:
    # Of a job of two ranks this backend has one, and nothing says which.
    rank = recorded(tmp_path, PROGRAM, 2)
    assert rank.read(files.PROGRESS) is not None and rank.read(files.PROGRESS).operations_total == 2
    assert rank.read(files.GROUPS) == []


@pytest.mark.slow
def test_a_group_s_own_backend_is_known_by_the_group(tmp_path: Path) -> None:
    rank = recorded(tmp_path, PROGRAM + IN_A_GROUP, 1)
    assert rank.read(files.PROGRESS) is not None
    found = [(o.method, o.group) for o in rank.read(files.PROGRESS).operations][2:]
    assert found == [("allreduce", "0"), ("allreduce", "0")]
    assert sorted(group.id for group in rank.read(files.GROUPS)) == ["", "0"]


class Bare:
    """A backend of somebody else's, as little of one as works."""

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1

    def name(self) -> str:
        return "bare"

    def allreduce(self, tensors: list[object]) -> str:
        return "done"


class Refusing(Bare):
    """As torch's own base of all backends answers."""

    @property
    def options(self) -> None:
        raise RuntimeError("Backend bare does not implement getBackendOptions")


@pytest.mark.parametrize("kind", [Bare, Refusing])
def test_a_backend_without_options_is_recorded_from_its_first_operation_on(
    tmp_path: Path, kind: type[Bare]
) -> None:
    progress = ProgressFile(tmp_path / files.PROGRESS.name)
    progress.identify(0, 0, 1)
    groups = GroupMembers(0)
    boundary = Boundary(
        progress,
        CallSites(lambda file: True, progress.text),
        lambda group: backends.look_at(group),
    )
    backends = Backends(boundary, 0, 1, groups)
    backends.install(Bare)
    try:
        backend = kind()
        assert [backend.allreduce([]), backend.allreduce([])] == ["done", "done"]
    finally:
        boundary.uninstall()
    found = read_progress((tmp_path / files.PROGRESS.name).read_bytes()).operations
    assert [(o.method, o.group) for o in found] == [("allreduce", ""), ("allreduce", "")]
    assert [row["ranks"] for row in groups.rows()] == [[0]]
