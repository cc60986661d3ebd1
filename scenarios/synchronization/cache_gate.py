"""Each rank gates its next pass on its own free cache blocks; rank 3 has too few of them.

It asks all ranks to evict, while its peers, which have enough, sum their activations.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario

BLOCKS = 64
PER_REQUEST = 4


class BlockCache:
    """The key and value blocks of one rank."""

    def __init__(self):
        self.free = BLOCKS

    def has_room(self, requests):
        return self.free >= requests * PER_REQUEST

    def evict(self, world_size, device):
        """Frees as many blocks as the rank that has the most to give up."""
        held = torch.tensor([BLOCKS - self.free], device=device)
        everybody = torch.empty(world_size, dtype=held.dtype, device=device)
        dist.all_gather_into_tensor(everybody, held)  # SEEN
        self.free = BLOCKS


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={3}, group="default_pg"),
    reference="NVIDIA/TensorRT-LLM#14020",
    zoo="H3",
    packs="serving",
)
def cache_gate(job):
    cache = BlockCache()
    layer = torch.nn.Linear(64, 64).to(job.device)
    with torch.no_grad():
        for step in job.steps(40):
            if job.faulty and job.rank == 3 and step == 9:
                cache.free -= PER_REQUEST  # FAULT  a block that a finished request still holds
            if not cache.has_room(requests=2):
                cache.evict(job.world_size, job.device)
            cache.free -= 2 * PER_REQUEST
            hidden = layer(job.batch(64, rows=2))
            dist.all_reduce(hidden)
