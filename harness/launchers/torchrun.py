"""The launcher that starts ranks cold, through the real torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hanglab.harness.launchers.environment import SHARED_GPU
from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.harness.launchers.supervision.launcher import GuardedLauncher

#: torchrun ends all ranks once it notices that one has failed; this many seconds
#: pass between two looks, so that the recorder can still capture the survivors.
#: How ranks end is known without torchrun, so nothing waits for it.
_MONITOR_INTERVAL_S = 5.0


class TorchrunLauncher(GuardedLauncher):
    """``python -m torch.distributed.run`` with a rendezvous of its own on a free port.

    Ranks are torchrun's children, so how one ended is read from its entry in
    /proc before torchrun collects it.  Should torchrun be quicker, which it is
    in less than one of a thousand cases, neither code nor signal is known.
    """

    name = "torchrun"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "hanglab.harness.launchers.supervision.command_ranks"]

    def order(self, plan: JobPlan, environment: dict[str, str]) -> Message:
        _add_hook(environment)
        script = os.path.abspath(plan.script)
        if plan.function is None and environment.get(SHARED_GPU):
            program = ["--module", "hanglab.harness.launchers.shared_gpu", script]
        elif plan.function is None:
            program = [script]
        else:
            program = ["--module", "hanglab.harness.scenarios.rank_entry", script, plan.function]
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
        return {
            "command": [
                *(sys.executable, "-m", "torch.distributed.run"),
                *(f"--{name}={value}" for name, value in options.items()),
                *program,
                *plan.arguments,
            ]
        }


def _add_hook(environment: dict[str, str]) -> None:
    """Puts the recorder's start-up hook first on the module path of ranks.

    Without it the job still runs; what is missing then is said by the Case.
    """
    try:
        from hanglab.recorder import rank as recorder

        folder = str(recorder.hook_dir())
    except (ImportError, AttributeError):
        return
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = folder if not path else folder + os.pathsep + path
