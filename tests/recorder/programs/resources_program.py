"""A rank that collects garbage, trains with an optimizer and draws batches of known sizes."""

import gc
import os

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size
)


class Cell:
    def __init__(self):
        self.me = self


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {"inputs": torch.zeros(5 + rank), "mask": (torch.ones(1), "text")}


gc.collect()
gc.freeze()
gc.disable()  # another thread may set off a run between the end of the cells and their collection
model = torch.nn.Linear(5 + rank, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=rank):
    model(batch["inputs"]).sum().backward()
    optimizer.step()
    if rank == 1:
        cells = [Cell() for _ in range(60_000)]
        del cells
        gc.collect()
    dist.all_reduce(torch.zeros(1))
# The recorder looks five times a second.
while torch.rand(2000, 200).sum() and not os.path.exists(os.environ["ENOUGH"]):
    pass
dist.barrier()
