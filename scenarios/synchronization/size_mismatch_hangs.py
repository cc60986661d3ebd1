"""Rank 1 reduces a longer tensor; NCCL compares no lengths, and its kernels wait for the rest."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.SIZE_MISMATCH, culprits={1}, group="default_pg"),
    reference="NVIDIA/nccl#1417",
    zoo="E4",
)
def size_mismatch_hangs(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        length = 1 << 10
        if job.faulty and job.rank == 1 and step == 5:
            length = 1 << 24  # the vocabulary that only this rank's tokenizer has
        counts = torch.ones(length, device=job.device)
        dist.all_reduce(counts)  # FAULT
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        torch.cuda.synchronize()
