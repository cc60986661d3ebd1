"""A rank with a DataLoader; WORKER says what befalls its worker: stuck, killed, exit or fine."""

import os
import signal
import time

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
fate = os.environ["WORKER"] if rank == 1 else "fine"
dist.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size
)


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        if index == 12:
            self.misbehave()
        return torch.full((4,), float(index))

    def misbehave(self):
        if fate == "stuck":
            # As long as there is somebody who could wait for it: a killed rank ends no worker.
            parent = os.getppid()
            while os.getppid() == parent:
                time.sleep(0.1)
            os._exit(0)
        elif fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fate == "exit":
            os._exit(3)


def train():
    for batch in torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=1):
        dist.all_reduce(batch)


train()
print("done", flush=True)
