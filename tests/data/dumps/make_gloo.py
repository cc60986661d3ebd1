"""Makes the dumps in ``gloo/``: what torch itself writes for a small job of four ranks.

    python tests/data/dumps/make_gloo.py

Needs torch.  Ranks 0 to 3 do a few collectives in the default group and in two
subgroups, a send and a receive, and dump in every form that torch offers.  Paths
of the machine are replaced, so that the files do not change with it.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from pathlib import Path

WORLD = 4
HERE = Path(__file__).parent


def train(rank: int) -> None:
    import torch
    import torch.distributed as dist

    pairs = [dist.new_group([0, 1], group_desc="left"), dist.new_group([2, 3], group_desc="right")]
    pair = pairs[rank // 2]
    small, large = torch.zeros(4), torch.zeros(32, 8)
    for _ in range(2):
        dist.all_reduce(large)
        dist.broadcast(small, src=0)
        dist.all_reduce(small, group=pair)
        dist.all_gather([torch.zeros(4) for _ in range(WORLD)], small)
    dist.all_to_all_single(torch.zeros(8), torch.zeros(8))
    dist.reduce_scatter_tensor(torch.zeros(2), torch.zeros(8))
    if rank == 0:
        dist.send(small, dst=1)
    elif rank == 1:
        dist.recv(small, src=0)
    dist.barrier()


def neutral(data: bytes) -> bytes:
    """``data`` with this machine's paths replaced, lengths included."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    for old, new in ((site, "/usr/lib/python3/site-packages"), (str(HERE), "/home/user")):
        start = 0
        needle = old.encode()
        while (found := data.find(needle, start)) >= 0:
            if data[found - 5 : found - 4] == b"X":  # BINUNICODE, four bytes of length
                (size,) = struct.unpack_from("<I", data, found - 4)
                text = new.encode() + data[found + len(needle) : found + size]
                data = (
                    data[: found - 4] + struct.pack("<I", len(text)) + text + data[found + size :]
                )
            start = found + 1
    return data


def run(rank: int, store: str) -> None:
    import torch.distributed as dist
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    train(rank)
    json = _dump_fr_trace_json(True, False)
    forms = {
        f"stacks/rank_{rank}": neutral(_dump_fr_trace(True, True, False)),
        f"plain/rank_{rank}": _dump_fr_trace(True, False, False),
        f"empty/rank_{rank}": _dump_fr_trace(False, False, False),
        f"json/rank_{rank}.json": json.encode() if isinstance(json, str) else json,
    }
    for name, data in forms.items():
        path = HERE / "gloo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    os.environ.update(TORCH_FR_BUFFER_SIZE="2000", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    import torch.distributed  # noqa: F401 - once, before the forks

    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                try:
                    run(rank, f"{folder}/store")
                except BaseException:
                    import traceback

                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            ranks.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
