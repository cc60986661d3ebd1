"""File systems that a rank can have for itself."""

from __future__ import annotations

from hanglab.harness.capabilities.registry import Capability, checks, tried


@checks("private_mounts")
def _private_mounts() -> Capability:
    """True if a rank can mount a disk that only it sees."""
    program = (
        "import os\nfrom hanglab.harness.system.mounts import mount_disk\n"
        "folder = mount_disk(1)\nassert os.statvfs(folder).f_blocks * 4096 <= 1 << 20"
    )
    return tried(
        "private_mounts",
        program,
        "a process can mount for itself alone",
        "run as root (in a container: --cap-add SYS_ADMIN)",
    )


@checks("private_storage")
def _private_storage() -> Capability:
    """True if a rank can mount a file system that it serves itself."""
    program = (
        "from hanglab.harness.system.stalling_file import Storage\n"
        "assert len(Storage(4096).file.read_bytes()) == 4096"
    )
    return tried(
        "private_storage",
        program,
        "a process can serve a file system for itself alone",
        "run as root where /dev/fuse is (in a container: --device /dev/fuse --cap-add SYS_ADMIN)",
    )
