"""A rank that sends to the others by isend, and keeps what that returns, or does not.

    hanglab run dropped_sends_program.py -- SENDER KEEPS TAGS

With KEEPS 0 the receivers post their receives only once the sender has let its sends go.  With TAGS
1 each step has a tag of its own.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

SENDER, KEEPS, TAGS = int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3] == "1"


def main() -> None:
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    kept = []
    for step in range(4):
        tag = step if TAGS else 0
        if dist.get_rank() == SENDER:
            for peer in range(dist.get_world_size()):
                if peer == SENDER:
                    continue
                if KEEPS or step < 3:
                    kept.append(dist.isend(torch.ones(256), peer, tag=tag))
                else:
                    dist.isend(torch.ones(256), peer, tag=tag)  # DROPS
            store.set(f"sent/{step}", "")
        else:
            store.wait([f"sent/{step}"])
            dist.recv(torch.empty(256), SENDER, tag=tag)
        dist.all_reduce(torch.ones(4))
    for work in kept:
        work.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
