"""Ranks 0 and 1 share two communicators; rank 1 enters them in the opposite order and waits."""

import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def reduce_and_wait(tensor, group):
    dist.all_reduce(tensor, group=group)  # SEEN
    return tensor.sum().item()


@scenario(
    world_size=2,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.GROUP_ORDER, culprits={1}),
    reference="NVIDIA/nccl#195",
    zoo="E7",
)
def communicators_crossed(job):
    everybody = list(range(job.world_size))
    expert_group = dist.new_group(everybody, group_desc="expert")
    data_group = dist.new_group(everybody, group_desc="data")
    for step in job.steps(20):
        work = [(job.batch(64), expert_group), (job.batch(64), data_group)]
        if job.faulty and job.rank == 1 and step == 5:  # FAULT
            work.reverse()
        for tensor, group in work:
            reduce_and_wait(tensor, group)
