"""Control groups of both versions, parsed from recorded files, and where they are mounted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conditions import wait_for

from hanglab.harness.system.cgroups import make
from hanglab.recorder.agent.samples import process_samples
from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.attach.registration import describe
from hanglab.recorder.attach.tree import FoundRank
from hanglab.recorder.system import pressure
from hanglab.recorder.system.cgroups import (
    CgroupLevel,
    cpu_group,
    group_of,
    is_frozen,
    levels_of,
    memory_group,
    mounts,
    pids_group,
)

DATA = Path(__file__).parents[2] / "data" / "cgroup"
POD = "0::/kubepods/pod7/trainer\n"
POD_MOUNTS = f"30 24 0:26 / {DATA}/v2 rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
DOCKER = (
    "9:pids:/docker/4f2a\n8:memory:/docker/4f2a\n4:cpu,cpuacct:/docker/4f2a\n"
    "1:name=systemd:/docker/4f2a\n0::/system.slice/containerd.service\n"
)
HOST_MOUNTS = "".join(
    f"70{n} 690 0:3{n} / {DATA}/v1/{name} rw,nosuid - cgroup cgroup rw,{name}\n"
    for n, name in enumerate(("cpu", "memory", "pids"))
)
#: Inside the container the mounts show its own part, while the paths are still the host's.
DOCKER_MOUNTS = "".join(
    f"70{n} 690 0:3{n} /docker/4f2a {DATA}/v1/{name}/docker/4f2a ro - cgroup cgroup rw,{options}\n"
    for n, (name, options) in enumerate(
        (("cpu", "cpu,cpuacct"), ("memory", "memory"), ("pids", "pids"))
    )
)


def test_limits_of_a_pod_stand_above_the_group_of_its_processes() -> None:
    levels = levels_of(POD, mounts(POD_MOUNTS))
    cpu = [g for level in levels["cpu"] if (g := cpu_group(level, [0])) is not None]
    assert [(g.path, g.quota_cpus, g.periods, g.throttled_periods) for g in cpu] == [
        ("/kubepods/pod7", 2.0, 1200, 840)
    ]
    assert cpu[0].throttled_s == pytest.approx(37.45)
    memory = [
        g for n, level in enumerate(levels["memory"]) if (g := memory_group(level, [0], n == 0))
    ]
    assert [(g.path, g.limit_bytes, g.oom_kills, g.refused) for g in memory] == [
        ("/kubepods/pod7/trainer", None, 1, 0),
        ("/kubepods/pod7", 4 << 30, 1, 5120),
    ]
    assert memory[1].refaults == 88123
    pids = [g for level in levels["pids"] if (g := pids_group(level, [0])) is not None]
    assert [(g.path, g.count, g.limit, g.refused) for g in pids] == [
        ("/kubepods/pod7", 1024, 1024, 17)
    ]


@pytest.mark.parametrize("mounted", [HOST_MOUNTS, DOCKER_MOUNTS], ids=["host", "container"])
def test_version_1_is_found_from_outside_and_from_inside_the_container(mounted: str) -> None:
    levels = levels_of(DOCKER, mounts(mounted))
    cpu = cpu_group(levels["cpu"][0], [0, 1])
    assert cpu is not None and cpu.version == 1
    assert (cpu.quota_cpus, cpu.periods, cpu.throttled_periods) == (0.3, 16, 15)
    assert cpu.throttled_s == pytest.approx(0.494229089)
    memory = memory_group(levels["memory"][0], [0, 1], own=True)
    assert memory is not None
    assert (memory.limit_bytes, memory.refused, memory.oom_kills) == (48 << 20, 46, 1)
    pids = pids_group(levels["pids"][0], [0, 1])
    assert pids is not None and (pids.limit, pids.refused, pids.count) == (8, 1, 0)
    # The root of version 1 sets no limit, whatever huge number it gives.
    tops = [cpu_group(levels["cpu"][-1], []), pids_group(levels["pids"][-1], [])]
    assert tops == [None, None] if mounted is HOST_MOUNTS else tops[0] is not None


def test_the_unified_hierarchy_beside_version_1_serves_only_what_is_not_mounted_there() -> None:
    both = mounts(HOST_MOUNTS + POD_MOUNTS)
    levels = levels_of(DOCKER, both)
    assert {level.version for controller in levels.values() for level in controller} == {1}
    only_cpu = mounts(HOST_MOUNTS.splitlines()[0] + "\n" + POD_MOUNTS)
    mixed = levels_of("4:cpu:/docker/4f2a\n0::/kubepods/pod7/trainer\n", only_cpu)
    assert mixed["cpu"][0].version == 1 and mixed["memory"][0].version == 2


def test_a_group_whose_name_only_begins_like_the_containers_is_not_below_it() -> None:
    levels = levels_of(DOCKER.replace("4f2a", "4f2ab"), mounts(DOCKER_MOUNTS))
    assert [level.path for level in levels["cpu"]] == ["/"]


@pytest.mark.parametrize("file", ["memory.max", "memory.limit_in_bytes"])
@pytest.mark.parametrize("told", ["9223372036854771712", "max", str(1 << 52)])
def test_bytes_that_no_host_has_are_no_limit(tmp_path: Path, file: str, told: str) -> None:
    version = 2 if file == "memory.max" else 1
    used = "memory.current" if version == 2 else "memory.usage_in_bytes"
    (tmp_path / file).write_text(f"{told}\n")
    (tmp_path / used).write_text("4096\n")
    level = CgroupLevel(str(tmp_path), "/", version)
    group = memory_group(level, [0], own=True)
    assert group is not None and group.limit_bytes is None and group.used_bytes == 4096
    assert memory_group(level, [0], own=False) is None


def test_the_group_of_a_process_is_its_own_and_none_above_it() -> None:
    try:
        above = group_of("pids", os.getpid())
        made = make("pids", os.getpid())
    except OSError as failure:
        pytest.skip(f"needs a control group of tasks: {failure}")
    child = subprocess.Popen(["sleep", "60"])
    try:
        made.add(child.pid)
        own = group_of("pids", child.pid)
        assert (own.folder, own.version) == (str(made.folder), made.version)
        made.set("pids.max", "7")
        limited = pids_group(own, [0])
        assert limited is not None and (limited.limit, limited.count) == (7, 1)
        assert group_of("pids", os.getpid()) == above != own
    finally:
        child.kill()
        child.wait()
        made.remove()
    with pytest.raises(OSError, match=f"pids control group of process {child.pid}"):
        group_of("pids", child.pid)


def test_what_a_freezer_holds_is_told_as_frozen_until_it_goes_on(tmp_path: Path) -> None:
    try:
        made = make("freezer", os.getpid())
    except OSError as failure:
        pytest.skip(f"needs a control group of a freezer: {failure}")
    file, frozen, thawed = (
        ("freezer.state", "FROZEN", "THAWED") if made.version == 1 else ("cgroup.freeze", "1", "0")
    )
    child = subprocess.Popen(["sleep", "60"])
    found = FoundRank(child.pid, 1, 2, 1, 0, "", "")
    rank = WatchedRank(tmp_path, describe(found, 0))
    try:
        made.add(child.pid)
        assert not is_frozen(child.pid)
        made.set(file, frozen)
        wait_for(lambda: is_frozen(child.pid), "the group to be frozen")
        (sample,) = process_samples(rank, capture=True)
        # Version 2 shows it by where it sleeps.
        assert sample.frozen or (made.version, sample.wchan) == (2, "do_freezer_trap")
        made.set(file, thawed)
        wait_for(lambda: not is_frozen(child.pid), "the group to be thawed")
        assert not process_samples(rank, capture=True)[0].frozen
    finally:
        made.set(file, thawed)
        child.kill()
        child.wait()
        made.remove()
    assert not is_frozen(child.pid), "it has ended"


def test_pressure_of_a_group_and_text_that_is_none() -> None:
    folder = DATA / "v2/kubepods/pod7/trainer"
    found = pressure.parse((folder / "memory.pressure").read_text(), "memory", "trainer")
    assert found is not None and found.full_s == pytest.approx(80.123456)
    assert found.some_percent == 41.2
    assert pressure.parse("some avg10=x total=1", "cpu") is None
    assert pressure.parse("", "cpu") is None
