"""Two ranks of which one never comes; what they do once they are interrupted hides where it was.

Arguments: a file to rendezvous in, and what they do then: "tidy" up and fail, or "swallow" it
and end as if all were well.
"""

import datetime
import os
import signal
import subprocess
import sys
import time

STORE, THEN = sys.argv[1:]


def launch() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}
        )
        for rank in (0, 1)
    ]
    code = ranks[1].wait()
    if THEN == "tidy":
        ranks[0].kill()
    return max(code, ranks[0].wait())


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
        if THEN == "swallow":
            print("good bye", flush=True)
            os._exit(0)  # without waiting for what will never come
        # It tidies up: what it still owed its peer, and its group.
        work = dist.all_reduce(torch.ones(4), async_op=True)
        work.wait()
        dist.destroy_process_group()
        sys.exit(1)


if "RANK" in os.environ:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    train()
else:
    sys.exit(launch())
