"""A replica without requests makes an empty pass, so that its peers' exchange is complete."""

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="vllm-project/vllm#51984",
    packs="serving",
)
def idle_replica_joins_in(job):
    expert = torch.nn.Linear(64, 64).to(job.device)
    with torch.no_grad():
        for step in job.steps(30):
            # Rank 2 gets requests in the first steps only, and rank 3 never.
            rows = 0 if job.rank == 3 or (job.rank == 2 and step >= 5) else 4
            counts = torch.tensor([rows] * job.world_size, device=job.device)
            theirs = torch.empty_like(counts)
            dist.all_to_all_single(theirs, counts)
            received = torch.empty(int(theirs.sum()), 64, device=job.device)
            sent = job.batch(64, rows=rows * job.world_size)
            dist.all_to_all_single(received, sent, theirs.tolist(), counts.tolist())
            dist.all_to_all_single(sent, expert(received), counts.tolist(), theirs.tolist())
