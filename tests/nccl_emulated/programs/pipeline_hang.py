"""The hang that the dumps of the Megatron jobs show, on fewer ranks.

Two stages of a pipeline with two tensor-parallel ranks each.  Ranks work through micro-batches;
then rank 3's host stands still, and the hosts of its peers launch as far as they get.
"""

from __future__ import annotations

import os
import pickle
import sys

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
from forked_ranks import PATIENCE_S, Rank, comes

CULPRIT = 3


def stage_step(tensor_group: object, expert_group: object) -> None:
    """What a stage does for a micro-batch, without waiting for any of it on the host."""
    tokens = torch.ones(1, 8)
    dist.broadcast(tokens, group=tensor_group, group_src=0)
    dist.broadcast(tokens, group=tensor_group, group_src=0)
    part, whole = torch.ones(4, 2), torch.empty(8, 2)
    dist.all_gather_single(whole, part, group=tensor_group)
    dist.reduce_scatter_single(part, whole, group=tensor_group)
    dist.all_reduce(torch.ones(16), group=tensor_group)
    dist.all_to_all_single(torch.empty(8, 2), torch.ones(8, 2), group=expert_group)


def hangs(rank: Rank) -> None:
    rank.join()
    me = rank.number
    tensor_groups = [
        dist.new_group(members, group_desc="TENSOR_MODEL_PARALLEL_GROUP")
        for members in ([0, 1], [2, 3])
    ]
    pipes = [
        dist.new_group(members, group_desc="PIPELINE_MODEL_PARALLEL_GROUP")
        for members in ([0, 2], [1, 3])
    ]
    # As many groups as make names of two digits, which torch does not sort as numbers.
    others = [dist.new_group([0, 1, 2, 3], group_desc="EXPERT_GROUP") for _ in range(8)]
    tensor_group, pipe = tensor_groups[me // 2], pipes[me % 2]
    works, peer = [], (me + 2) % 4
    for step in range(4):
        if step == 3:
            torch.zeros(1).item()  # all before is done
            if me == CULPRIT:
                break
        out, into = torch.ones(4, 1, 2), torch.empty(4, 1, 2)
        # Each direction of the pipeline has a group of its own, as in Megatron.
        if me < 2:
            works.append(dist.isend(out, peer, group=pipe))
            dist.irecv(into, peer).wait()  # on the stream: what follows is behind it
        else:
            received = dist.irecv(into, peer, group=pipe)
            works.append(dist.isend(out, peer))
            received.wait()
        stage_step(tensor_group, others[-1])
    rank.signal(f"launched{me}")
    for other in range(4):
        rank.wait_for(f"launched{other}")
    assert comes(lambda: settled(me), PATIENCE_S)
    rank.tell(dump=pickle.loads(c10d._dump_fr_trace(True, False, True)))
    rank.signal(f"dumped{me}")
    for other in range(4):
        rank.wait_for(f"dumped{other}")
    os._exit(0)


def settled(me: int) -> bool:
    """True once the watchdog has done with all that is done."""
    dump = pickle.loads(c10d._dump_fr_trace(True, False, False))
    return all(e["retired"] or e["state"] != "completed" for e in dump["entries"]) and (
        me != CULPRIT or all(e["state"] == "completed" for e in dump["entries"])
    )
