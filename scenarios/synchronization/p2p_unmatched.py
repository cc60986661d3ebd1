"""Stage 1 of a pipeline takes its last microbatch for padding and does not pass it on."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario

MICROBATCHES = 4


def receive(shape, source, device):
    activations = torch.empty(shape, device=device)
    dist.recv(activations, source)
    return activations


@scenario(
    world_size=4,
    expect=Expect(Cause.P2P_UNMATCHED, culprits={1}, group="default_pg"),
    reference="NVIDIA/Megatron-LM#5100",
    zoo="D10",
)
def p2p_unmatched(job):
    stage = torch.nn.Linear(64, 64).to(job.device)
    last = job.world_size - 1
    for step in job.steps(20):
        loss = torch.zeros(1, device=job.device)
        for microbatch in range(MICROBATCHES):
            first = job.rank == 0
            inputs = job.batch(64) if first else receive((32, 64), job.rank - 1, job.device)
            with job.section("forward"):
                outputs = stage(inputs).relu().detach()
            padding = job.faulty and step == 5 and microbatch == MICROBATCHES - 1
            if job.rank == last:
                loss += outputs.mean()
            elif not (padding and job.rank == 1):  # FAULT
                dist.send(outputs, job.rank + 1)
        dist.all_reduce(loss)  # SEEN
