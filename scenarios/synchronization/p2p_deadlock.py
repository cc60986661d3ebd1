"""Two neighbours exchange the borders of their sequences, and both send before they receive."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def exchange(border, neighbour, send_first):
    """The neighbour's border.  Of the two ranks, exactly one has to send first."""
    received = torch.empty_like(border)
    if send_first:
        dist.send(border, neighbour)  # SEEN
        dist.recv(received, neighbour)
    else:
        dist.recv(received, neighbour)
        dist.send(border, neighbour)
    return received


@scenario(
    world_size=4,
    expect=Expect(Cause.P2P_DEADLOCK, culprits={0, 1}),
    reference="pytorch/pytorch#172668",
    zoo="E19",
)
def p2p_deadlock(job):
    model = torch.nn.Conv1d(4, 4, kernel_size=3).to(job.device)
    neighbour = job.rank ^ 1
    for step in job.steps(20):
        sequence = job.batch(256, rows=32).view(8, 4, 256)
        if neighbour < job.world_size:
            send_first = job.rank < neighbour
            if job.faulty and step == 5 and job.rank in (0, 1):  # FAULT
                send_first = True
            border = exchange(sequence[..., -2:].contiguous(), neighbour, send_first)
            sequence = torch.cat([border, sequence], dim=-1)
        with job.section("forward_backward"):
            model(sequence).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        model.zero_grad()
