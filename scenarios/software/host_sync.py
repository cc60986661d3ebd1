"""Rank 1 waits for its device before it launches the send that its peer needs first."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=2,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.HOST_SYNC, culprits={1}),
    reference="NVIDIA/nccl#239",
    zoo="D1",
)
def host_sync(job):
    both = list(range(job.world_size))
    requests = dist.new_group(both, group_desc="requests")
    answers = dist.new_group(both, group_desc="answers")
    for step in job.steps(20):
        request, answer = job.batch(64), job.batch(64)
        if job.rank == 0:
            dist.recv(request, src=1, group=requests)
            dist.send(answer, dst=1, group=answers)
        else:
            dist.irecv(answer, src=0, group=answers)
            if job.faulty and step == 5:
                torch.cuda.synchronize()  # FAULT
            dist.send(request, dst=0, group=requests)
        torch.cuda.synchronize()
