"""Alarms that go off in the midst of recorded operations; tells how many never reached the job."""

import gc
import os
import signal
import time

import torch
import torch.distributed as dist


class Alarm(TimeoutError):
    pass


def ring(number, frame):
    raise Alarm


dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=0, world_size=1)
tensor = torch.ones(1)
dist.all_reduce(tensor)
# What is raised in a callback of the collector the interpreter itself drops.
gc.disable()
signal.signal(signal.SIGALRM, ring)
lost = 0
for number in range(400):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + number * 0.000003)
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            dist.all_reduce(tensor)
        lost += 1
    except Alarm:
        pass
print(f"lost {lost}", flush=True)
