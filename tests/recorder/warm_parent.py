"""Forks ranks that run a program under the recorder, from a process that has torch imported.

One JSON line on standard input starts a job, one line each on standard output
tells the process ids and, later, how each rank ended.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import select
import signal
import sys

import torch
import torch.nn.parallel
import torch.utils.data

from hanglab.recorder import rank as recorder


def be_rank(job: dict[str, object], rank: int) -> None:
    """Runs the program as ``python program.py`` would; what it raises reaches the top."""
    environment = job["environment"]
    assert isinstance(environment, dict)
    os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(job["world_size"]))
    logs = os.path.dirname(str(environment["STORE"]))
    os.setsid()
    # A rank of its own must not hold the pipes of the one that started it.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name, fd in (("out", 1), ("err", 2)):
        os.dup2(os.open(f"{logs}/rank{rank}.{name}", os.O_CREAT | os.O_WRONLY, 0o600), fd)
    torch.set_num_threads(1)
    sys.argv = [str(job["program"])]
    sys.path[0] = os.path.dirname(sys.argv[0])
    if "FILE_LIMIT" in environment:
        limit = int(environment["FILE_LIMIT"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if job["record"]:
        recorder.start(
            str(environment["HANGLAB_CASE"]), rank=rank, world_size=int(str(job["world_size"]))
        )
    runpy.run_path(sys.argv[0], run_name="__main__")


def main() -> None:
    ranks: dict[int, int] = {}
    print("{}", flush=True)
    buffered = b""
    while True:
        ready, _, _ = select.select([0], [], [], 0.02)
        if ready:
            block = os.read(0, 65536)
            if not block:
                break
            buffered += block
            *lines, buffered = buffered.split(b"\n")
            for line in lines:
                job = json.loads(line)
                for rank in range(job["world_size"]):
                    pid = os.fork()
                    if pid == 0:
                        be_rank(job, rank)
                        return
                    ranks[pid] = rank
                    print(json.dumps({"rank": rank, "pid": pid}), flush=True)
        for pid in list(ranks):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                rank = ranks.pop(pid)
                print(json.dumps({"rank": rank, "ended": pid, "status": status}), flush=True)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


main()
