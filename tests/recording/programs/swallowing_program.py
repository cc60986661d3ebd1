"""Two ranks of which one never comes; interrupted, both end as if all were well.

Argument: a file to rendezvous in.
"""

import datetime
import os
import signal
import subprocess
import sys
import time

STORE = sys.argv[1]


def launch() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}
        )
        for rank in (0, 1)
    ]
    return max(rank.wait() for rank in ranks)


def train() -> None:
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{STORE}",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=600),
    )
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    try:
        if rank == 1:
            time.sleep(600)  # away
        work = dist.all_reduce(torch.ones(4), async_op=True)
        while not work.is_completed():
            time.sleep(0.05)
    except KeyboardInterrupt:
        print("good bye", flush=True)
        os._exit(0)  # without waiting for what will never come


if "RANK" in os.environ:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    train()
else:
    sys.exit(launch())
