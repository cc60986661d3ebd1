"""Rank 0 initialises the weights of a deep model for everybody, who wait to be sent them."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def initialise_attention(layer):
    torch.nn.init.orthogonal_(layer.weight)  # SEEN
    torch.nn.init.zeros_(layer.bias)  # SEEN


def initialise_feed_forward(layer):
    torch.nn.init.orthogonal_(layer.weight, gain=2**0.5)  # SEEN
    torch.nn.init.zeros_(layer.bias)  # SEEN


def initialise(layers):
    """Orthogonal weights, block by block."""
    for attention, feed_forward in zip(layers[::2], layers[1::2], strict=True):  # SEEN
        initialise_attention(attention)  # SEEN
        initialise_feed_forward(feed_forward)  # SEEN


@scenario(
    world_size=4,
    expect=Expect(Cause.RANK0_WORK, culprits={0}),
    hang_after=1.0,
    reference="foundation-model-stack/fms-fsdp#19",
    zoo="A10",
)
def weights_initialised(job):
    width, depth = (512, 240) if job.faulty else (32, 4)  # FAULT
    layers = [torch.nn.Linear(width, width).to(job.device) for _ in range(depth)]
    dist.barrier()
    if job.rank == 0:
        initialise(layers)
    dist.barrier()
    for layer in layers[:4]:
        dist.broadcast(layer.weight.data, src=0)
    for _ in job.steps(20):
        with job.section("forward_backward"):
            loss = layers[0](job.batch(width)).square().mean()
            loss.backward()
        dist.all_reduce(layers[0].weight.grad)
        layers[0].zero_grad()
