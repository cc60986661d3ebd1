"""Real work for programs with a slow rank, and what they tell the test."""

import json
import math
import os
import time
from functools import cache

import torch

#: Seconds of a sound forward pass: on a crowded machine each entry may begin with a wait for a
#: processor of some milliseconds; at 1 ms such waits alone once made a sound rank, in a report of
#: five entries, seven times as slow as its peer.
SOUND_S = 0.006
#: Products of one turn of the work.
_PRODUCTS = 6


@cache
def sound_turns():
    """Turns that take that long here: processors differ several times over in such work."""
    a = torch.randn(128, 128)
    taken = []
    for _ in range(50):
        began = time.perf_counter()
        turn(a)
        taken.append(time.perf_counter() - began)
    # The quickest had a processor for itself.
    return math.ceil(SOUND_S / min(taken))


def turn(a):
    for _ in range(_PRODUCTS):
        a = torch.tanh(a @ a / 12)
    return a


class Worker(torch.nn.Module):
    """A small network whose forward pass takes some turns of real work."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 1)
        self.turns = sound_turns()
        self.a = torch.randn(128, 128)

    def forward(self, x):
        a = self.a
        for _ in range(self.turns):
            a = turn(a)
        return self.layer(x) + 0 * a.mean()


def turns_of(rank, fault):
    """Rank 1 works sixteen times as long where something is wrong with it."""
    return sound_turns() * (16 if fault and rank == 1 else 1)


def tell(fit, rank, steps, watch):
    """One line per fit and rank: how far it came and, on rank 0, who was found slow."""
    line = {
        "fit": fit,
        "rank": rank,
        "steps": steps,
        "reported": watch.report is not None,
        "slow": sorted(one.rank for one in watch.stragglers),
    }
    # One write, as the ranks share the pipe.
    # Whatever else writes to that pipe may stand in the middle of a line: a progress bar does.
    os.write(1, f"\nTOLD {json.dumps(line)}\n".encode())
