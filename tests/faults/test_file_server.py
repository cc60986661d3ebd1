"""A file system that a process serves: it may stop answering, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanglab.harness.capabilities import capability
from hanglab.harness.system.file_server import FileServer

#: Says when it has opened the file, and when it is about to read what nobody has read before.
READER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
print("open", flush=True)
input()
print("reads", flush=True)
os.pread(file, 4096, 2 << 20)
print("done", flush=True)
"""


@pytest.fixture
def server() -> Iterator[FileServer]:
    if not capability("root").available or not Path("/dev/fuse").exists():
        pytest.skip("needs root and /dev/fuse; run as root, in a container with --device /dev/fuse")
    with FileServer(4 << 20) as made:
        yield made


def test_a_file_server_leaves_no_mount(server: FileServer) -> None:
    with open(f"{server.folder}/data", "rb") as file:
        assert file.read(4096) == bytes(4096)
    assert server.folder in mounted()
    server.close()
    assert server.folder not in mounted()
    assert not Path(server.folder).exists()


def test_a_reader_waits_for_a_server_that_has_stopped_and_can_be_killed(
    server: FileServer,
) -> None:
    reader = subprocess.Popen(
        [sys.executable, "-S", "-c", READER, f"{server.folder}/data"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdin is not None and reader.stdout is not None
    assert reader.stdout.readline() == b"open\n"
    server.order("stop")
    try:
        reader.stdin.write(b"\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == b"reads\n"
        with pytest.raises(subprocess.TimeoutExpired):
            reader.wait(0.3)
        reader.kill()
        assert reader.wait(280) != 0
    finally:
        server.order("go")
        reader.kill()
        reader.communicate()


def mounted() -> str:
    with open("/proc/self/mounts", encoding="utf-8") as file:
        return file.read()
