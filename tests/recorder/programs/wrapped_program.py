"""Prints what becomes of functions that a recorder may wrap, and of arguments that it looks at."""

import functools
import inspect
import os
import pickle
import sys
import threading
import traceback
from collections import UserDict

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.utils.data import DataLoader, Dataset, dataloader
from torch.utils.data._utils import fetch

# Before torch puts a hook of its own there.
for hook in (sys.excepthook, threading.excepthook):
    print(pickle.loads(pickle.dumps(hook)) is hook)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size
)


class Stream:
    """A batch that can be read once."""

    def __init__(self, parts):
        self.parts = iter(parts)

    def values(self):
        return list(self.parts)


class Kinds(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, number):
        parts = {"x": torch.ones(2), "y": torch.ones(3)}
        return [Stream(parts), UserDict(parts), parts][number]


FUNCTIONS = {
    "print_exception": lambda: traceback.print_exception,
    "format_exception": lambda: traceback.format_exception,
    "new_group": lambda: distributed_c10d._new_group_with_tag,
    "default group": lambda: distributed_c10d._update_default_pg,
    "next": lambda: dataloader._BaseDataLoaderIter.__next__,
    "workers": lambda: dataloader._MultiProcessingDataLoaderIter.__init__,
    "end": lambda: dataloader._MultiProcessingDataLoaderIter._shutdown_workers,
    "fetch": lambda: fetch._MapDatasetFetcher.fetch,
}
for name, get in FUNCTIONS.items():
    partial = functools.partial(get(), 1)
    print(name, pickle.loads(pickle.dumps(get())) is get())
    print(name, pickle.loads(pickle.dumps(partial)).func is get())
    print(name, get().__module__, get().__qualname__, inspect.signature(get()))
for members in (range(size), iter(range(size)), (number for number in range(size))):
    print(dist.get_process_group_ranks(dist.new_group(members)))
for batch in DataLoader(Kinds(), batch_size=None):
    print(len(batch.values()))
dist.destroy_process_group()
