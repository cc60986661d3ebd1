"""The launcher that forks ranks off a process in which torch is already imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from hanglab.harness.launchers.environment import settled_early
from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.harness.launchers.supervision.launcher import Kind, SupervisedLauncher


class LocalLauncher(SupervisedLauncher):
    """Ranks on this host, through their first collective in a fraction of a second.

    What an interpreter or torch reads only once (PYTHONHASHSEED, LD_PRELOAD,
    TORCH_LOGS ...) is respected by keeping one warm process for each set of such
    variables.  The ranks of one job share one hash seed, as ranks of torchrun do
    not: a hang that hangs on the order of a set needs that launcher.
    """

    name = "local"

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("warm_parent.py"))]

    def kind_of(self, environment: Mapping[str, str]) -> Kind:
        return settled_early(environment)

    def order(self, plan: JobPlan, environment: dict[str, str]) -> Message:
        return {
            "script": os.path.abspath(plan.script),
            "function": plan.function,
            "arguments": list(plan.arguments),
        }
