"""Jobs that leave evidence: their ring, their dumps, and the end that a watchdog makes."""

from __future__ import annotations

import os
import pickle
import sys
import time

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
from forked_ranks import PATIENCE_S, Rank, comes


def _dump(*wanted: bool) -> dict:
    return pickle.loads(c10d._dump_fr_trace(*wanted))


def _is_written(file: str) -> bool:
    """True once a dump is in its file, which is made before it is written into."""
    return os.path.exists(file) and os.path.getsize(file) > 0


def _retired(entry: int) -> bool:
    """True if the watchdog has done with the work of an entry."""
    return _dump(True, False, False)["entries"][entry]["retired"]


def _last_started() -> int:
    """The last operation that the watchdog saw start; entries tell what a dump sees, too."""
    return _dump(False, False, False)["pg_status"]["0"]["last_started_collective"]


def states(rank: Rank) -> None:
    """One operation is done, the next waits for rank 1, a third is behind it."""
    rank.join()
    dist.all_reduce(torch.ones(3))
    torch.zeros(1).item()
    if rank.number == 1:
        rank.wait_for("dumped")
        return
    assert comes(lambda: _retired(0), PATIENCE_S)
    dist.all_gather_single(torch.empty(4), torch.ones(2))
    dist.broadcast(torch.ones(5, dtype=torch.float64), src=1)
    from hanglab.harness.nccl_emulated.device import current_device

    device = current_device()
    assert comes(lambda: device.outstanding[0].started_ns != 0, PATIENCE_S)
    if os.environ["TORCH_NCCL_ENABLE_TIMING"] == "1":
        assert comes(lambda: _last_started() == 2, PATIENCE_S)
    content = _dump(True, True, False)
    rank.tell(
        dump=content,
        active=len(_dump(True, False, True)["entries"]),
        without=_dump(False, False, False),
        stacks="frames" in _dump(True, False, False)["entries"][0],
    )
    rank.signal("dumped")


def batches(rank: Rank) -> None:
    rank.join()
    n, me = rank.size, rank.number
    into = torch.empty(2)
    for work in dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.ones(2), (me + 1) % n),
            dist.P2POp(dist.irecv, into, (me - 1) % n),
        ]
    ):
        work.wait()
    into.tolist()
    dist.barrier()
    assert comes(lambda: _retired(-1), PATIENCE_S)
    rank.tell(dump=_dump(True, False, False))


def exchanges(rank: Rank) -> None:
    """Two ranks send each other a row of three; rank 1 keeps two more for itself."""
    rank.join()
    here = torch.ones(rank.number + 2, 3)
    sent, taken = ([1, 1], [1, 1]) if rank.number == 0 else ([1, 2], [1, 2])
    dist.all_to_all_single(torch.empty(sum(taken), 3), here, taken, sent)
    dist.all_to_all_single(torch.empty(2, 3), torch.ones(2, 3))
    torch.zeros(1).item()
    dist.barrier()
    rank.tell(dump=_dump(True, False, False))


def time_limit(rank: Rank) -> None:
    """Rank 1 takes no part in the second operation: rank 0's watchdog ends it."""
    rank.join(timeout_s=1.0)
    dist.all_reduce(torch.ones(3))
    torch.zeros(1).item()
    if rank.number == 1:
        file = os.environ["TORCH_FR_DUMP_TEMP_FILE"]
        comes(lambda: all(_is_written(f"{file}{number}") for number in (0, 1)), PATIENCE_S)
        rank.tell(files=[os.path.exists(f"{file}{number}") for number in (0, 1)])
        os._exit(0)
    dist.all_reduce(torch.ones(7))
    rank.tell(host="went on")
    time.sleep(PATIENCE_S)


def pipe(rank: Rank) -> None:
    rank.join()
    dist.all_reduce(torch.ones(3))
    torch.zeros(1).item()
    path = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank.number}.pipe"
    comes(lambda: os.path.exists(path), PATIENCE_S)
    with open(path, "w") as asked:
        asked.write("1")
    file = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank.number)
    comes(lambda: _is_written(file), PATIENCE_S)
    with open(file, "rb") as dump:
        rank.tell(names=[entry["profiling_name"] for entry in pickle.load(dump)["entries"]])


def beside_gloo(rank: Rank) -> None:
    """A group of gloo beside: one dump has both."""
    rank.join()
    gloo = dist.new_group(backend="gloo")
    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(4), group=gloo)
    torch.zeros(1).item()
    rank.tell(dump=_dump(True, False, False))
