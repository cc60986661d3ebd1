"""Real work for programs with a slow rank, and what they tell the test."""

import json
import os

import torch

#: 6 ms: on a crowded machine each entry may begin with a wait for a processor of some milliseconds;
#: at 1 ms such waits alone once made a sound rank, in a report of five entries, seven times as slow
#: as its peer.
SOUND_TURNS = 12


class Worker(torch.nn.Module):
    """A small network whose forward pass takes half a millisecond of real work a turn."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 1)
        self.turns = SOUND_TURNS
        self.a = torch.randn(128, 128)

    def forward(self, x):
        a = self.a
        for _ in range(6 * self.turns):
            a = torch.tanh(a @ a / 12)
        return self.layer(x) + 0 * a.mean()


def turns_of(rank, fault):
    """Rank 1 works sixteen times as long where something is wrong with it."""
    return 16 * SOUND_TURNS if fault and rank == 1 else SOUND_TURNS


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
