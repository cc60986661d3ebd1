"""Two ranks of a gloo job, each in a network namespace of its own, for tests of the network.

``python gloo_pair_program.py SECONDS ELEMENTS``: all_reduces so many elements again and again.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time


def enter(namespace: str) -> None:
    """Before anything opens a socket or starts a thread."""
    descriptor = os.open(f"/proc/{namespace}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)


def main() -> None:
    enter(os.environ["PAIR_NAMESPACE"])
    import torch
    import torch.distributed as dist

    seconds, elements = float(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    tensor = torch.ones(elements)
    dist.all_reduce(tensor)
    print("ready", flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        dist.all_reduce(tensor)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
