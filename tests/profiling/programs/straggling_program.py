"""A job whose straggler detector calls rank 1 slow.  argv: seconds to run."""

import sys
import time

import torch
import torch.distributed as dist

from hanglab.recorder.straggler import Detector

dist.init_process_group("gloo")
detector = Detector(report_time_interval=1.0)
begun = time.monotonic()
going = torch.ones(1)
step = 0
while going.item() > 0:
    with detector.detection_section("work"):
        time.sleep(0.04 if dist.get_rank() == 1 else 0.01)
    detector.generate_report_if_interval_elapsed()
    step += 1
    if step == 3:
        print(f"rank {dist.get_rank()} trains", flush=True)
    going = torch.tensor([float(time.monotonic() - begun < float(sys.argv[1]))])
    dist.all_reduce(going, dist.ReduceOp.MIN)
detector.shutdown()
dist.destroy_process_group()
