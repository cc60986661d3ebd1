"""The kernel's side of a file system that is served by a process: FUSE (linux/fuse.h), by hand.

It holds one read-only file.  A reader of a server that does not answer sleeps in
the kernel as it does on NFS whose server is gone, and unlike there it can be killed.
"""

from __future__ import annotations

import os
import stat
import struct

DEVICE = "/dev/fuse"
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 14, 15, 17, 18
_INIT, _OPENDIR, _RELEASEDIR, _INTERRUPT, _BATCH_FORGET = 26, 27, 29, 36, 42
_ASYNC_READ = 1
_ROOT, _FILE = 1, 2
_NAME = b"data"
_ENOENT, _ENOSYS = 2, 38
_IN, _OUT = struct.Struct("=IIQQIIII"), struct.Struct("=IiQ")
_ATTRIBUTES = struct.Struct("=6Q10I")


class SingleFile:
    """A file system with nothing but the file ``data``: ``size`` bytes of zeros."""

    name = _NAME.decode()

    def __init__(self, size: int) -> None:
        self._size = size

    def serve_one(self, device: int) -> bool:
        """Takes a request of the kernel and answers it; False where there will be no more."""
        try:
            request = os.read(device, 1 << 18)
        except OSError:
            return False
        _, opcode, unique, node, *_ = _IN.unpack_from(request)
        answer = self._answer(opcode, node, request[_IN.size :])
        if answer is not None:
            error, data = answer
            os.write(device, _OUT.pack(_OUT.size + len(data), -error, unique) + data)
        return True

    def _answer(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes] | None:
        """Error number and payload; None where the kernel wants no answer."""
        if opcode in (_FORGET, _BATCH_FORGET, _INTERRUPT):
            return None
        if opcode == _INIT:
            major, minor, readahead = struct.unpack_from("=III", body)
            return 0, struct.pack(
                "=IIIIHHII28x", major, min(minor, 31), readahead, _ASYNC_READ, 12, 9, 1 << 16, 1
            ).ljust(64, b"\0")
        if opcode == _LOOKUP:
            if node != _ROOT or body.split(b"\0")[0] != _NAME:
                return _ENOENT, b""
            return 0, struct.pack("=4Q2I", _FILE, 0, 0, 0, 0, 0) + self._attributes(_FILE)
        if opcode == _GETATTR:
            return 0, struct.pack("=QII", 0, 0, 0) + self._attributes(node)
        if opcode in (_OPEN, _OPENDIR):
            return 0, struct.pack("=QII", 0, 0, 0)
        if opcode == _READ:
            _, offset, size = struct.unpack_from("=QQI", body)
            return 0, bytes(max(0, min(size, self._size - offset)))
        if opcode == _STATFS:
            return 0, struct.pack("=5Q4I24x", 1 << 20, 1 << 19, 1 << 19, 10, 5, 4096, 255, 4096, 0)
        if opcode in (_RELEASE, _RELEASEDIR):
            return 0, b""
        # Also to FLUSH, which the kernel then sends no more (see file_server.FileServer).
        return _ENOSYS, b""

    def _attributes(self, node: int) -> bytes:
        folder = node == _ROOT
        mode = stat.S_IFDIR | 0o755 if folder else stat.S_IFREG | 0o444
        size = 0 if folder else self._size
        return _ATTRIBUTES.pack(
            node, size, -(-size // 512), 0, 0, 0, 0, 0, 0, mode, 1 + folder,
            os.getuid(), os.getgid(), 0, 4096, 0,
        )  # fmt: skip
