"""Averages a gradient by hand for a few steps, with a neighbour that it imports."""

from pathlib import Path

import averaging_settings
import torch
import torch.distributed as dist

BESIDE = Path(__file__).with_name("averaging_settings.py").read_text()


def average(gradient):
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()


def main():
    assert "STEPS" in BESIDE
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    weight = torch.ones(64, requires_grad=True)
    for step in range(averaging_settings.STEPS):
        loss = (weight * (step + 1)).square().sum()
        loss.backward()
        average(weight.grad)
        dist.broadcast(
            weight.data[:1],
            src=0,
        )
        weight.grad = None
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
