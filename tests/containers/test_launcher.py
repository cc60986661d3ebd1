"""Ranks in containers: where they run, under which limits, how they end, and what is left."""

from __future__ import annotations

import os
import signal
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conditions import wait_for
from containers_support import SLEEPS, TELLS, all_exits, make_plan, pause, remains, running, told

from hanglab.harness.faults.fault import Fault
from hanglab.harness.hosts import HostSettings
from hanglab.harness.launchers.docker.image import USER
from hanglab.harness.launchers.docker.launcher import DockerLauncher
from hanglab.harness.launchers.nodes.placement import TooManyNodes, devices_of, placed

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker


def test_ranks_are_spread_over_nodes(
    tmp_path: Path, launcher: DockerLauncher, engine: DockerClient
) -> None:
    plan = make_plan(tmp_path, TELLS, "--rate", 3, world_size=4, nodes=2, faulty=False)
    with running(launcher, plan) as job:
        exits = all_exits(job)
        assert [node.ranks for node in job.hosts.values()] == [(0, 1), (2, 3)]
        container = job.hosts[1].container
        assert container.name.startswith("hanglab-program-")
        assert container.name.endswith("-node1")
        assert container.labels["hanglab.run"] == str(tmp_path)
        assert container.labels["hanglab.node"] == "1"
        assert container.labels["hanglab.job"] in job.hosts.network.name
        assert Path("/sys/class/net", job.hosts.bridge).exists()
        ranks = [told(plan, rank) for rank in range(4)]
        assert [one["address"] for one in ranks[::2]] == [n.address for n in job.hosts.values()]
        first = job.hosts[0].address
    assert {rank: (end.code, end.signal) for rank, end in exits.items()} == dict.fromkeys(
        range(4), (0, None)
    )
    assert [one["host"] for one in ranks] == ["node0", "node0", "node1", "node1"]
    assert [one["LOCAL_RANK"] for one in ranks] == ["0", "1", "0", "1"]
    assert [one["GROUP_RANK"] for one in ranks] == ["0", "0", "1", "1"]
    assert {one["LOCAL_WORLD_SIZE"] for one in ranks} == {"2"}
    assert {one["WORLD_SIZE"] for one in ranks} == {"4"}
    assert {one["MASTER_ADDR"] for one in ranks} == {first}
    assert {one["HANGLAB_FAULT"] for one in ranks} == {"0"}
    assert ranks[0]["arguments"] == ["--rate", "3"]
    assert {one["uid"] for one in ranks} == {USER[0] if os.geteuid() == 0 else os.geteuid()}
    assert not remains(engine, tmp_path)


@dataclass(frozen=True, kw_only=True)
class Tight(Fault):
    """Changes the node of its rank in every way that there is."""

    def prepare(self, number: int, settings: HostSettings) -> None:
        if self.rank in settings.ranks:
            settings.memory_bytes = 512 << 20
            settings.cpus = 0.5
            settings.pids = 100
            settings.shm_bytes = 8 << 20
            settings.ulimits["nofile"] = 99
            settings.tmpfs["/scratch"] = "size=1m"
            settings.cap_add.add("NET_ADMIN")
            settings.wrap[:] = ["env", "SKEW=prepared"]

    def settings(self, number: int, settings: HostSettings) -> None:
        if self.rank in settings.ranks:
            settings.wrap[:] = ["env", "SKEW=struck"]


@pytest.mark.parametrize("faulty", [True, False])
def test_a_fault_changes_its_own_node_only(
    tmp_path: Path, launcher: DockerLauncher, faulty: bool
) -> None:
    plan = make_plan(tmp_path, TELLS, faults=(Tight(rank=1, after_s=0),), faulty=faulty)
    with running(launcher, plan) as job:
        all_exits(job)
        limits = job.hosts[1].container.attrs["HostConfig"]
        free = job.hosts[0].container.attrs["HostConfig"]
    assert limits["Memory"] == limits["MemorySwap"] == 512 << 20
    assert limits["NanoCpus"] == 5 * 10**8
    assert limits["PidsLimit"] == 100
    assert "NET_ADMIN" in limits["CapAdd"]
    assert not free["Memory"] and not free["NanoCpus"] and not free["PidsLimit"]
    loose, tight = told(plan, 0), told(plan, 1)
    assert (tight["shm"], tight["files"], tight["scratch"]) == (8 << 20, 99, True)
    assert tight["skew"] == ("struck" if faulty else "prepared")
    assert (loose["shm"], loose["scratch"], loose["skew"]) == (1 << 30, False, None)


def test_ends_and_logs_come_out(tmp_path: Path, launcher: DockerLauncher) -> None:
    program = """\
import os, signal, sys
print("rank", os.environ["RANK"], file=sys.stderr, flush=True)
if os.environ["RANK"] == "0":
    sys.exit(7)
os.kill(os.getpid(), signal.SIGSEGV)
"""
    plan = make_plan(tmp_path, program)
    with running(launcher, plan) as job:
        exits = all_exits(job)
    assert (exits[0].code, exits[0].signal) == (7, None)
    assert (exits[1].code, exits[1].signal) == (None, signal.SIGSEGV)
    for rank in (0, 1):
        assert exits[rank].stderr.read_text().startswith(f"rank {rank}\n")
    for folder, _, files in os.walk(tmp_path):
        for path in [Path(folder), *(Path(folder) / name for name in files)]:
            assert path.stat().st_uid == os.geteuid(), path


def test_ranks_that_run_are_found_and_ended(
    tmp_path: Path, launcher: DockerLauncher, engine: DockerClient
) -> None:
    plan = make_plan(tmp_path, SLEEPS)
    with running(launcher, plan) as job:
        wait_for(lambda: (plan.log_dir / "rank1.out").exists(), "rank 1")
        wait_for(lambda: len(job.pids) == 2, "process ids")
        for rank, pid in job.pids.items():
            assert job.hosts.process_of(rank) == pid
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            assert str(plan.script) in words
            environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
            assert f"RANK={rank}" in environment
        os.kill(job.pids[1], signal.SIGKILL)
        (end,) = [end for end in job.events(280) if end.rank == 1]
        assert (end.code, end.signal) == (None, signal.SIGKILL)
        pids = list(job.pids.values())
        assert job.alive()
    assert not job.alive()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not remains(engine, tmp_path)
    job.end()  # does nothing


def test_a_node_that_dies_takes_its_ranks_with_it(
    tmp_path: Path, launcher: DockerLauncher, engine: DockerClient
) -> None:
    plan = make_plan(tmp_path, SLEEPS, world_size=3, nodes=2)
    with running(launcher, plan) as job:
        job.hosts[0].container.kill()
        exits = {end.rank: end for end in job.events(280)}
        assert {rank: end.signal for rank, end in exits.items()} == {
            0: signal.SIGKILL,
            1: signal.SIGKILL,
        }
        assert job.alive()
    assert not remains(engine, tmp_path)


def test_a_paused_node_is_removed_at_once(
    tmp_path: Path, launcher: DockerLauncher, engine: DockerClient
) -> None:
    plan = make_plan(tmp_path, SLEEPS)
    with running(launcher, plan) as job:
        out = plan.log_dir / "rank1.out"
        wait_for(lambda: out.exists() and out.read_text(), "rank 1")
        pause(job.hosts[1].container)
    assert not remains(engine, tmp_path)


_LISTENS = """\
import os, socket, time
if os.environ["RANK"] == "0":
    with socket.create_server(("0.0.0.0", 7000)) as server:
        print("listening", flush=True)
        while True:
            server.accept()[0].close()
time.sleep(600)
"""
_CALLS = """\
import socket, sys
for host in sys.argv[1:]:
    try:
        socket.create_connection((host, 7000), timeout=2).close()
        print(host, "answers")
    except OSError as error:
        print(host, "does not:", error)
"""


def test_two_jobs_do_not_see_each_other(
    tmp_path: Path, launcher: DockerLauncher, engine: DockerClient
) -> None:
    listening = make_plan(tmp_path / "one", _LISTENS)
    with running(launcher, listening) as one:
        out = listening.log_dir / "rank0.out"
        wait_for(lambda: out.exists() and out.read_text(), "the listener")
        address = one.hosts[0].address
        container = one.hosts[1].container
        code, said = container.exec_run(["/opt/hanglab/bin/python", "-c", _CALLS, address, "node0"])
        assert (code, said.decode().split("\n")[:1]) == (0, [f"{address} answers"])
        calling = make_plan(tmp_path / "two", _CALLS, address, world_size=1)
        with running(launcher, calling) as other:
            assert set(other.hosts.network.attrs["Labels"]) >= {"hanglab.owner", "hanglab.job"}
            assert other.hosts.network.id != one.hosts.network.id
            all_exits(other)
        assert (calling.log_dir / "rank0.out").read_text().startswith(f"{address} does not")
        assert one.alive()  # whom the end of the other has not touched
        assert remains(engine, tmp_path / "one")
    assert not remains(engine, tmp_path)


def test_a_program_in_a_closed_folder_runs_alone(tmp_path: Path, launcher: DockerLauncher) -> None:
    open_folder, closed = tmp_path / "open", tmp_path / "closed"
    program = "import os\nprint(sorted(os.listdir(os.path.dirname(__file__))))\n"
    for folder, mode in ((open_folder, 0o755), (closed, 0o700)):
        folder.mkdir(mode=mode)
        (folder / "beside.py").write_text("")
        run = tmp_path / f"{folder.name}-run"
        plan = replace(make_plan(folder, program, world_size=1), run_dir=run, case_dir=run / "case")
        plan.script.chmod(0o644)
        with running(launcher, plan) as job:
            all_exits(job)
        seen = (plan.log_dir / "rank0.out").read_text()
        assert "program.py" in seen
        # Root's own folder is closed to the user that ranks run as, a user's is not.
        alone = folder is closed and os.geteuid() == 0
        assert ("beside.py" in seen) is not alone
        assert stat.S_IMODE(folder.stat().st_mode) == mode


def test_ranks_are_placed_in_even_blocks() -> None:
    assert placed(4, None) == [(0,), (1,), (2,), (3,)]
    assert placed(5, 2) == [(0, 1, 2), (3, 4)]
    with pytest.raises(TooManyNodes, match="2 ranks do not fill 3 nodes"):
        placed(2, 3)


def test_gpus_go_round_over_the_ranks_of_all_nodes() -> None:
    assert devices_of((0, 1), "4,5,6,7") == ["4", "5"]
    assert devices_of((2, 3), "4,5,6,7") == ["6", "7"]
    assert devices_of((2, 3), "GPU-a") == ["GPU-a"]
    assert devices_of((0,), "") == []
