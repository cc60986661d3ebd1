"""A rank that leaves everything about that a rank can leave, says what, and waits or ends.

Arguments: the folder to announce it in, and ``wait`` or ``end``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing import shared_memory
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.utils.data import DataLoader, TensorDataset


def daemon() -> int:
    """A process that has left its parent, session and process group, and ignores signals."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.write(writing, str(os.getpid()).encode())
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    return int(os.read(reading, 32))


def stopped() -> int:
    sleeper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    sleeper.send_signal(signal.SIGSTOP)
    return sleeper.pid


def main() -> None:
    folder, then = Path(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    before = set(os.listdir("/dev/shm"))
    rank = dist.get_rank()
    total = torch.ones(1)
    dist.all_reduce(total)

    listener = socket.create_server(("127.0.0.1", 0))
    temporary = tempfile.NamedTemporaryFile(delete=False)
    loader = DataLoader(TensorDataset(torch.ones(64, 2)), num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    segment = shared_memory.SharedMemory(create=True, size=4096)
    semaphore = multiprocessing.get_context("spawn").Semaphore()
    torch.multiprocessing.set_sharing_strategy("file_system")
    tensor = torch.ones(1024).share_memory_()

    mine = [segment.name, "sem." + semaphore._semlock.name.strip("/")]  # type: ignore[attr-defined]
    mine += [
        n for n in set(os.listdir("/dev/shm")) - before if n.startswith(f"torch_{os.getpid()}")
    ]
    announcement = {
        "pids": [os.getpid(), daemon(), stopped(), *(w.pid for w in batches._workers)],
        "segments": mine,
        "files": [temporary.name],
        "port": listener.getsockname()[1],
        "sum": total.item(),
    }
    draft = folder / f"rank{rank}.draft"
    draft.write_text(json.dumps(announcement))
    draft.rename(folder / f"rank{rank}.json")
    while then == "wait":
        time.sleep(60)
    dist.barrier()
    del tensor
    # The daemon and the stopped process still are there: nobody waits for those.
    os._exit(0)


main()
