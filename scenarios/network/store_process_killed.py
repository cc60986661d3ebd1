"""The process beside rank 0 that keeps the job's own store is killed; rank 0 itself lives on."""

import os
import subprocess
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, StoreGone, scenario

SERVER = """
import sys, time
from torch.distributed import TCPStore
store = TCPStore("0.0.0.0", int(sys.argv[1]), is_master=True, wait_for_workers=False)
while True:
    time.sleep(60)
"""


@scenario(
    world_size=3,
    expect=Expect(Cause.STORE_LOST, culprits={0}, location=None),
    reference="xorbitsai/inference#4421",
    zoo="C9",
    faults=[StoreGone(rank=0, beside=1, at_step=1000)],
    backends=("gloo",),
    needs=("docker", "outside_processes"),
)
def store_process_killed(job):
    port = int(os.environ["MASTER_PORT"]) + 1
    server = None
    if job.rank == 0:
        server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)])
    progress = dist.TCPStore(
        os.environ["MASTER_ADDR"], port, is_master=False, timeout=timedelta(seconds=60)
    )
    matrix = torch.randn(200, 200)
    total = torch.ones(1)
    for step in job.steps(20_000 if job.faulty else 40):
        progress.set(f"step of rank {job.rank}", str(step))
        matrix = torch.linalg.qr(matrix).Q
        dist.all_reduce(total)
    if server is not None:
        server.terminate()
        server.wait()
