"""Rank 2 leaves one gradient out; the hosts launch on, and stand in the report at the end."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def reduce_gradients(model, frozen):
    """Launches a reduction for each gradient, and lets the stream wait for all of them."""
    works = []
    for name, parameter in model.named_parameters():
        if name != frozen:
            works.append(dist.all_reduce(parameter.grad, async_op=True))  # SEEN
    for work in works:
        work.wait()


@scenario(
    world_size=4,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={2}, group="default_pg"),
    reference="pytorch/pytorch#77562",
    zoo="E1",
)
def host_far_ahead(job):
    layers = [torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 8)]
    model = torch.nn.Sequential(*layers).to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        frozen = "0.bias" if job.faulty and job.rank == 2 and step == 5 else ""  # FAULT
        reduce_gradients(model, frozen)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f}")
