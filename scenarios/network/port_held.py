"""A server that has nothing to do with the job holds its port on rank 0's node."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, PortTaken, Status, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.RENDEZVOUS, culprits={0}, status=Status.FAILED),
    reference="pytorch/pytorch#129367",
    zoo="C10",
    faults=[PortTaken(rank=0)],
    needs=("docker", "outside_processes"),
    hang_after=5,
)
def port_held(job):
    dist.init_process_group(job.backend)  # SEEN
    total = torch.ones(1)
    for _ in job.steps(20):
        dist.all_reduce(total)
    dist.destroy_process_group()
