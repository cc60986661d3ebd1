"""DistributedDataParallel as people train with it: torchrun starts it, or it spawns its ranks.

The argument names what is odd in this run; without one nothing is.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ODD = sys.argv[1] if len(sys.argv) > 1 else ""


class Digits(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(size, 32, generator=generator)
        self.y = torch.randint(0, 10, (size,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if ODD == "slow_loader":
            time.sleep(0.15)
        return self.x[i], self.y[i]


def evaluate(model, data):
    with torch.no_grad():
        logits = model(data.x[:64])
    if ODD == "long_validation":
        compute_for(4)
    return (logits.argmax(1) == data.y[:64]).float().mean()


def save(model, step):
    if dist.get_rank() == 0:
        if ODD == "slow_checkpoint":
            write_slowly(model.state_dict(), f"{os.environ['TMPDIR']}/step{step}.pt")
        else:
            torch.save(model.state_dict(), f"{os.environ['TMPDIR']}/step{step}.pt")
    dist.barrier()  # SEEN early_break


def write_slowly(state, path):
    with open(path, "wb") as file:
        for _ in range(40):
            file.write(os.urandom(1 << 18))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.2)
        torch.save(state, file)


def bad_batch(rank, epoch, step):
    return ODD == "skip_backward" and rank == 1 and (epoch, step) == (1, 3)


def converged(rank, epoch, step):
    early = ODD in ("early_break", "early_break_metric")
    return early and rank == 1 and (epoch, step) == (1, 3)


def smooth(a):
    return torch.tanh(a @ a / 16)


def sharpen(a):
    return a - a.mean(0) + torch.sin(a @ a.T / 16)


def compute_for(seconds):
    # Real work, in which nothing but the function changes.
    end = time.monotonic() + seconds
    a = torch.randn(256, 256)
    while time.monotonic() < end:
        for _ in range(40):
            a = smooth(a)
        for _ in range(40):
            a = sharpen(a) / 4


def long_step(step):
    if ODD == "long_step" and step == 3:
        compute_for(8)


def train(rank):
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Digits(192)
    sampler = DistributedSampler(data)
    workers = 1 if ODD == "slow_loader" else 0
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=workers)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(x), y)  # SEEN skip_backward
            long_step(step)
            if bad_batch(rank, epoch, step):
                continue
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if converged(rank, epoch, step):
                break
        accuracy = evaluate(model.module, data)
        if ODD == "early_break_metric":
            dist.all_reduce(accuracy)  # SEEN early_break_metric
        save(model, epoch)
    if rank == 0:
        print(f"accuracy {accuracy:.2f}")


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    train(dist.get_rank())
    dist.destroy_process_group()


def spawned(rank, world_size):
    os.environ["RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(world_size)
    main()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        mp.spawn(spawned, args=(2,), nprocs=2)
