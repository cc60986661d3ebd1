"""A firewall on rank 0's node refuses rank 2 at the meeting point; the job never forms."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, RefuseConnections, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.RENDEZVOUS, culprits={2}),
    reference="measured by hand; no public thread",
    faults=[RefuseConnections(rank=0, other=2)],
    needs=("docker", "outside_filter"),
)
def store_refused(job):
    dist.init_process_group(job.backend)  # SEEN
    total = torch.ones(1)
    for _ in job.steps(20):
        dist.all_reduce(total)
    dist.destroy_process_group()
