"""A script that ends while its watchdog is in a call to the store: ``ends_by_itself.py STORE``."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from hanglab.harness import nccl_emulated
from hanglab.harness.nccl_emulated import watchdog


class SlowStore:
    """Waits in C++, without the interpreter, as one does whose server is busy."""

    def check(self, keys: list[str]) -> bool:
        store.wait(["nobody sets it"], timedelta(milliseconds=20))
        return False


watchdog._TURN_S = 0.0
watchdog._SIGNAL_TURNS = 1
nccl_emulated.register()
store = dist.FileStore(sys.argv[1], 1)
dist.init_process_group("nccl_emulated", store=store, rank=0, world_size=1)
dist.group.WORLD._launches.root_store = SlowStore()
dist.all_reduce(torch.ones(2))
torch.zeros(1).item()
