"""The table of mounts, and the space that a file system has left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hanglab.recorder.case.file_system_space import Space
from hanglab.recorder.system.mount_table import read_mounts, space_of

TABLE = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
41 22 0:36 /part /mnt/two\040words\134040 ro,nosuid master:2 shared:9 - tmpfs none rw,size=1g
42 22 0:37 / /proc\011x rw -
43 22 0:38 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
"""


def test_names_with_spaces_and_fields_that_are_optional() -> None:
    root, part, controllers = read_mounts(TABLE)
    assert (root.point, root.device, root.read_only, root.filesystem) == (
        "/",
        (8, 1),
        False,
        "ext4",
    )
    # An escaped backslash begins no other escape.
    assert (part.root, part.point, part.read_only) == ("/part", r"/mnt/two words\040", True)
    assert controllers.options == ("rw", "cpu", "cpuacct")


def test_the_table_of_this_process_has_the_mount_of_each_path() -> None:
    mounts = read_mounts(Path("/proc/self/mountinfo").read_text())
    device = os.stat("/proc/self").st_dev
    held = [m for m in mounts if m.device == (os.major(device), os.minor(device))]
    assert any(m.point == "/proc" and m.filesystem == "proc" for m in held)


def test_space_is_that_of_a_process_without_privileges(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    told = os.statvfs(tmp_path)
    assert space.size_bytes == told.f_blocks * told.f_frsize
    assert space.free_bytes is not None and space.free_bytes <= told.f_bfree * told.f_frsize
    assert not space.is_full
    with pytest.raises(FileNotFoundError):
        space_of(tmp_path / "none")


@pytest.mark.parametrize(
    ("space", "full"),
    [
        (Space(1 << 40, 1 << 18, None, None), True),
        (Space(1 << 40, (1 << 18) + 1, None, None), False),
        # Of a small one, so much is room.
        (Space(64 << 20, 1 << 18, None, None), False),
        (Space(64 << 20, 64 << 10, None, None), True),
        (Space(1 << 20, 4096, 100, 100), True),
        (Space(1 << 40, 1 << 39, 100, 0), True),
        # A file system without sizes, such as proc, or one that has not answered.
        (Space(0, 0, None, None), False),
        (Space(None, None, None, None), False),
    ],
)
def test_a_file_system_is_full_where_nothing_more_goes_in(space: Space, full: bool) -> None:
    assert space.is_full is full
