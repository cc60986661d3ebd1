"""Rank 1 leaves an operation out while a thread of each rank logs, and asks another program.

With ``locked`` it takes a lock twice instead, and threads log alone.
"""

import os
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

#: Seconds for which it logs: far longer than the hang takes to be found.
LOGS_S = 100.0
LOCKED = "locked" in sys.argv


def log(path):
    until = time.monotonic() + LOGS_S
    while time.monotonic() < until:
        with open(path, "a") as file:
            file.write("alive\n")
        if not LOCKED:
            asked = [sys.executable, "-S", "-c", "print(1)"]
            subprocess.run(asked, stdout=subprocess.DEVNULL)
        time.sleep(0.1)  # the pace of a log: it waits for nothing
    open(path + ".over", "w").close()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(sys.argv[1], f"log-{rank}")
    threading.Thread(target=log, args=(path,), daemon=True).start()
    for step in range(20):
        if (rank, step) == (1, 12) and LOCKED:
            lock = threading.Lock()
            with lock, lock:
                pass
        if (rank, step) != (1, 12):
            dist.all_reduce(torch.ones(4))
    dist.barrier()
