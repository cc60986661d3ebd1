"""A job in which one step takes long, and which asks for a trace of rank 1."""

import time

import torch
import torch.distributed as dist

from hanglab import recorder

dist.init_process_group("gloo")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
begun = time.monotonic()
step = 0
going = torch.ones(1)
while going.item() > 0:
    recorder.step()
    model(torch.randn(8, 64)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    if step == 100:
        # Long enough for an agent that looks twice a second.
        time.sleep(4.0)
    if step == 400 and dist.get_rank() == 0:
        assert recorder.profile(100, ranks=[1])
    time.sleep(0.01)
    step += 1
    going = torch.tensor([float(step < 900)])
    dist.all_reduce(going, dist.ReduceOp.MIN)
dist.destroy_process_group()
