"""Dense and embedding gradients have a group each; rank 1 reduces them in the opposite order."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Ranker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 32)
        self.dense = torch.nn.Linear(32, 1)

    def forward(self, ids):
        return self.dense(self.embedding(ids).mean(dim=1))


@scenario(
    world_size=4,
    expect=Expect(Cause.GROUP_ORDER, culprits={1}),
    reference="meta-pytorch/torchrec#4149",
    zoo="E7",
)
def group_order(job):
    everybody = list(range(job.world_size))
    dense_group = dist.new_group(everybody, group_desc="dense")
    sparse_group = dist.new_group(everybody, group_desc="sparse")
    model = Ranker().to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        ids = torch.randint(100, (32, 8), device=job.device)
        with job.section("forward_backward"):
            model(ids).square().mean().backward()
        ready = [(model.dense.weight, dense_group), (model.embedding.weight, sparse_group)]
        if job.faulty and job.rank == 1 and step == 5:  # FAULT
            ready.reverse()
        for parameter, group in ready:
            dist.all_reduce(parameter.grad, group=group)  # SEEN
        optimizer.step()
        optimizer.zero_grad()
