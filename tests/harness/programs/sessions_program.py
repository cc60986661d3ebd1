"""Starts ranks as a shell's loop over setsid would: a session and a log each, no agent.

Arguments: number of ranks, folder of logs, then those of Python for each rank.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hanglab.harness.launchers.environment import rank_environment

world_size, logs, program = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
logs.mkdir()
ranks = []
for rank in range(world_size):
    ranks.append(
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-u", *program],
            {**os.environ, **rank_environment(rank, world_size, "sessions")},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, str(logs / f"{rank}.a"), os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_OPEN, 2, str(logs / f"{rank}.b"), os.O_WRONLY | os.O_CREAT, 0o600),
            ],
            setsid=True,
        )
    )
for pid in ranks:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
