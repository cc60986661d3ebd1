"""Rank 1 tells its peers to reach it at its loopback interface, where each finds only itself."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, Status, WrongInterface, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.RENDEZVOUS, culprits={1}, status=Status.FAILED),
    reference="measured by hand; no public thread",
    zoo=("C1", "C2"),
    faults=[WrongInterface(rank=1, interface="lo")],
    backends=("gloo",),
    needs=("docker", "outside_processes"),
    hang_after=3,
)
def loopback_advertised(job):
    dist.init_process_group("gloo")  # SEEN
    total = torch.ones(1)
    for _ in job.steps(20):
        dist.all_reduce(total)
    dist.destroy_process_group()
