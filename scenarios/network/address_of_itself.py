"""On rank 1's node the name of the first host means the node itself; it never finds the others."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, WrongAddress, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.RENDEZVOUS, culprits={1}),
    reference="measured by hand; no public thread",
    faults=[WrongAddress(rank=1)],
    needs=("docker", "outside_processes"),
)
def address_of_itself(job):
    dist.init_process_group(job.backend)  # SEEN
    total = torch.ones(1)
    for _ in job.steps(20):
        dist.all_reduce(total)
    dist.destroy_process_group()
