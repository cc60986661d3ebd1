"""A small transformer sharded with ``fully_shard``: torchrun starts it, or it spawns its ranks.

The argument names what is odd in this run; without one nothing is.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

ODD = sys.argv[1] if len(sys.argv) > 1 else ""
STEPS = 16


class Decoder(torch.nn.Module):
    def __init__(self, width=32, layers=2, words=64):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def sample(rank, step):
    # Somebody looks at what the model says now and then, and forgot that its weights are shards.
    return ODD == "eval_on_rank0" and rank == 0 and step == 12


def save(model, step):
    if ODD == "save_on_rank0" and dist.get_rank() != 0:
        return
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if dist.get_rank() == 0:
        if ODD == "slow_checkpoint":
            write_slowly(state, f"{os.environ['TMPDIR']}/step{step}.pt")
        else:
            torch.save(state, f"{os.environ['TMPDIR']}/step{step}.pt")
    dist.barrier()


def write_slowly(state, path):
    with open(path, "wb") as file:
        for _ in range(40):
            file.write(os.urandom(1 << 18))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.2)
        torch.save(state, file)


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
    if ODD == "long_step" and step == 9:
        compute_for(8)


def train(rank, world_size):
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world_size,))
    model = Decoder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        tokens = torch.randint(0, 64, (4, 17), generator=generator)
        loss = loss_of(model, tokens)
        long_step(step)
        loss.backward()  # SEEN eval_on_rank0
        optimizer.step()
        optimizer.zero_grad()
        if sample(rank, step):
            with torch.no_grad():
                print(f"step {step}: loss {loss_of(model, tokens):.3f}")
        if step % 8 == 7:
            save(model, step)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    train(dist.get_rank(), dist.get_world_size())
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
        os.environ.setdefault("MASTER_PORT", "29512")
        mp.spawn(spawned, args=(2,), nprocs=2)
