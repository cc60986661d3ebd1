"""Reads a file of a file system that a child of its own serves; the second block never comes.

Whatever else it is asked the server answers.  Says "ready" once it reads that block.
"""

import contextlib
import ctypes
import os
import signal
import struct
import sys
import tempfile
import time

from hanglab.harness.system.fuse import DEVICE, SingleFile
from hanglab.harness.system.mounts import mount

BLOCK = 1 << 20
READ = 15


class Served(SingleFile):
    """``pace``: seconds for each piece of the second block; for ever without."""

    pace: float | None = None

    def _answer(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes] | None:
        if opcode == READ and struct.unpack_from("=QQ", body)[1] >= BLOCK:
            if self.pace is None:
                return None
            time.sleep(self.pace)
        return super()._answer(opcode, node, body)


def main(pace: float | None) -> None:
    served = Served(1024 * BLOCK)
    served.pace = pace
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    folder = tempfile.mkdtemp(prefix="storage-")
    mount("test", folder, "fuse", f"fd={device},rootmode=40000,user_id=0,group_id=0")
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            while served.serve_one(device):
                pass
        os._exit(0)
    os.close(device)
    with open(os.path.join(folder, "data"), "rb", buffering=0) as file:
        file.read(BLOCK // 2)
        print("ready", flush=True)
        file.seek(BLOCK)
        file.read(512 * BLOCK)


main(float(sys.argv[1]) if len(sys.argv) > 1 else None)
