"""Two groups' reductions are launched in opposite orders, and the device has room for one kernel.

No host waits in between: what deadlocks is the order on the devices.
"""

import os

import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=2,
    # How many kernels of NCCL fit side by side cannot be set on a GPU.
    backends=("nccl-emulated",),
    expect=Expect(Cause.GROUP_ORDER, culprits={1}),
    reference="NVIDIA/nccl#195",
    zoo="D2",
)
def crossed_on_device(job):
    os.environ["HANGLAB_EMULATED_SLOTS"] = "1"
    dist.init_process_group("nccl")
    everybody = list(range(job.world_size))
    groups = [dist.new_group(everybody, group_desc=name) for name in ("tensor", "data")]
    for step in job.steps(20):
        order = list(groups)
        if job.faulty and job.rank == 1 and step == 5:  # FAULT
            order.reverse()
        tensors = [job.batch(64) for _ in order]
        works = [
            dist.all_reduce(tensor, group=group, async_op=True)  # SEEN
            for tensor, group in zip(tensors, order, strict=True)
        ]
        for work in works:
            work.wait()
        tensors[0].sum().item()
    dist.destroy_process_group()
