"""Rank 1 logs a value of its device before it launches the send that its peer needs first."""

import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def log(step, answer):
    print(f"step {step}: {answer.mean().item():.3f}")  # SEEN


@scenario(
    world_size=2,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.HOST_SYNC, culprits={1}),
    reference="NVIDIA/nccl#239",
    zoo="D1",
)
def item_on_one_branch(job):
    both = list(range(job.world_size))
    requests = dist.new_group(both, group_desc="requests")
    answers = dist.new_group(both, group_desc="answers")
    for step in job.steps(20):
        request, answer = job.batch(64), job.batch(64)
        if job.rank == 0:
            dist.recv(request, src=1, group=requests)
            dist.send(answer, dst=1, group=answers)
        else:
            arrival = dist.P2POp(dist.irecv, answer, 0, answers)
            (work,) = dist.batch_isend_irecv([arrival])
            if job.faulty and step == 5:  # FAULT
                work.wait()
                log(step, answer)
            dist.send(request, dst=0, group=requests)
            work.wait()
        request.sum().item()
