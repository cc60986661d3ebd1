"""Rank 1 meets a bad label and raises; its peers wait for its gradients."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario

CLASSES = 8


def check(labels):
    """Labels outside the range would corrupt the loss silently on a GPU."""
    if labels.max() >= CLASSES:
        raise ValueError(f"label {labels.max().item()} of {CLASSES} classes")  # SEEN


@scenario(
    world_size=4,
    expect=Expect(Cause.EXCEPTION, culprits={1}),
    reference="dmlc/xgboost#11217",
    zoo="B6",
)
def exception(job):
    model = DistributedDataParallel(torch.nn.Linear(64, CLASSES).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        labels = torch.randint(CLASSES, (32,), device=job.device)
        if job.faulty and job.rank == 1 and step == 5:  # FAULT
            labels[7] = CLASSES
        check(labels)
        with job.section("forward_backward"):
            logits = model(job.batch(64))
            torch.nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
