"""The process that serves a file system to a node: ``file_server FOLDER BYTES``.

Told ``stop`` on its standard input it answers nothing any more, told ``go`` it
answers again, and what has waited too.  When its input ends it unmounts: that
is so also when hanglab is killed.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys

from hanglab.harness.system.fuse import DEVICE, SingleFile

_NOSUID, _NODEV, _DETACH = 2, 4, 2


def main() -> int:
    folder, size = sys.argv[1], int(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as failure:
        print(f"{DEVICE}: {failure.strerror}", file=sys.stderr)
        return 1
    # Users of the container other than root are to read it, too.
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"hanglab", folder.encode(), b"fuse", _NOSUID | _NODEV, options.encode()):
        print(f"mount: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    try:
        print("ready", flush=True)
        _serve(device, SingleFile(size))
    finally:
        libc.umount2(folder.encode(), _DETACH)
    return 0


def _serve(device: int, served: SingleFile) -> None:
    answering = True
    while True:
        ready, _, _ = select.select([sys.stdin, *([device] if answering else [])], [], [])
        if sys.stdin in ready:
            order = os.read(sys.stdin.fileno(), 64)
            if not order:
                return
            answering = order.endswith(b"go\n")
            print("done", flush=True)
        elif not served.serve_one(device):
            return


if __name__ == "__main__":
    sys.exit(main())
