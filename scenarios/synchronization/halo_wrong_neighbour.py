"""Ranks on a ring exchange borders with both neighbours; rank 2 takes the one after its right."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def exchange(field, left, right):
    """Fill the two border columns of ``field`` with what the neighbours have beside them."""
    borders = torch.empty(2, field.shape[0], device=field.device)
    # Where hosts run ahead, the line that launched the batch is named.
    pending = dist.batch_isend_irecv(  # SEEN
        [
            dist.P2POp(dist.isend, field[:, -2].contiguous(), right),
            dist.P2POp(dist.irecv, borders[0], left),
            dist.P2POp(dist.isend, field[:, 1].contiguous(), left),
            dist.P2POp(dist.irecv, borders[1], right),
        ]
    )
    for work in pending:
        work.wait()  # SEEN
    field[:, 0], field[:, -1] = borders[0], borders[1]


@scenario(
    world_size=6,
    expect=Expect(Cause.P2P_UNMATCHED, culprits={2}, group="default_pg"),
    reference="pytorch/torchtitan#775",
)
def halo_wrong_neighbour(job):
    field = job.batch(64)
    left, right = (job.rank - 1) % job.world_size, (job.rank + 1) % job.world_size
    for step in job.steps(20):
        if job.faulty and job.rank == 2 and step == 5:  # FAULT
            right = (job.rank + 2) % job.world_size
        exchange(field, left, right)
        with job.section("smooth"):
            field[:, 1:-1] = (field[:, :-2] + field[:, 2:]) / 2
