"""Records itself.  Arguments: the Case, when a hang is one, and how this goes."""

import os
import sys
import time

from hanglab import recorder

recorder.start(out=sys.argv[1] or None, hang_after=float(sys.argv[2]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group(
    "gloo",
    init_method=f"file://{os.environ['STORE']}",
    rank=int(os.environ["NUMBER"]),
    world_size=2,
)
for step in range(6):
    recorder.step()
    with recorder.section("forward"):
        tensor = torch.ones(4)
    if dist.get_rank() == 1 and step == 3 and sys.argv[3] == "hang":
        time.sleep(600)
    dist.all_reduce(tensor)
recorder.dump()
dist.destroy_process_group()
print("done", tensor.sum().item())
