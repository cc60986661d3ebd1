"""Two trainers push weights in buckets, in turns; rank 1 begins its own before its peer's is out.

It is in the next bucket with the engines, which still wait for the last one from rank 0, and rank 0
waits for rank 1's shard of that: three groups, of which each waits for the next.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario

#: Numbers of a bucket: more than fits between two GPUs before the receiver comes.
BUCKET = 4 << 20


class WeightUpdate:
    """Rank 0 sends buckets of sharded layers, rank 1 those that it has whole; engines get both."""

    def __init__(self, job):
        self.rank, self.device = job.rank, job.device
        engines = list(range(2, job.world_size))
        self.trainers = dist.new_group([0, 1], group_desc="trainers")
        self.sharded = dist.new_group([0, *engines], group_desc="sharded")
        self.whole = dist.new_group([1, *engines], group_desc="whole")

    def send_sharded(self):
        bucket = torch.zeros(BUCKET, device=self.device)
        if self.rank < 2:
            shard = torch.ones(BUCKET // 2, device=self.device)
            dist.all_gather_into_tensor(bucket, shard, group=self.trainers)
        if self.rank != 1:
            dist.broadcast(bucket, src=0, group=self.sharded)

    def send_whole(self):
        if self.rank != 0:
            bucket = torch.ones(BUCKET, device=self.device)
            dist.broadcast(bucket, src=1, group=self.whole)  # SEEN


@scenario(
    world_size=4,
    expect=Expect(Cause.GROUP_ORDER, culprits={1}),
    reference="RLinf/RLinf#1540",
    zoo="H10",
    packs="rl",
)
def next_bucket(job):
    update = WeightUpdate(job)
    for step in job.steps(10):
        buckets = [update.send_sharded, update.send_whole]
        if job.faulty and job.rank == 1 and step == 5:  # FAULT
            buckets.reverse()
        for send in buckets:
            send()
        dist.barrier()  # the version is complete everywhere
