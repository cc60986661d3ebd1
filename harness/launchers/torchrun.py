"""The launcher that starts ranks cold, through the real torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.supervision.command_launcher import CommandLauncher

#: torchrun ends all ranks once it notices that one has failed; this many seconds
#: pass between two looks, so that the recorder can still capture the survivors.
#: How ranks end is known without torchrun, so nothing waits for it.
_MONITOR_INTERVAL_S = 5.0


class TorchrunLauncher(CommandLauncher):
    """``python -m torch.distributed.run`` with a rendezvous of its own on a free port.

    Ranks are torchrun's children, so how one ended is read from its entry in
    /proc before torchrun collects it.  Should torchrun be quicker, which it is
    in less than one of a thousand cases, neither code nor signal is known.
    """

    name = "torchrun"

    def start_command(
        self, plan: JobPlan, environment: dict[str, str], program: list[str]
    ) -> list[str]:
        options = {
            "nnodes": "1",
            "nproc-per-node": str(plan.world_size),
            "max-restarts": "0",
            "monitor-interval": str(_MONITOR_INTERVAL_S),
            "rdzv-backend": "c10d",
            "rdzv-endpoint": "127.0.0.1:0",
            "rdzv-id": Path(environment["HANGLAB_RUNTIME"]).name,
            "local-addr": "127.0.0.1",
            "redirects": "3",
            "log-dir": os.path.abspath(plan.log_dir / "torchrun"),
        }
        return [
            *(sys.executable, "-m", "torch.distributed.run"),
            *(f"--{name}={value}" for name, value in options.items()),
            *program,
        ]
