"""Base of launchers that start ranks cold, through a command."""

from __future__ import annotations

import os
import sys

from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.harness.launchers.supervision.launcher import SupervisedLauncher
from hanglab.harness.rank.shared_gpu import SHARED_GPU
from hanglab.recorder.case.backends import backend_of


class CommandLauncher(SupervisedLauncher):
    """Starts jobs by a command whose children are the ranks.

    A rank is known by RANK in its environment, and its output is read from the files that the
    command gave it.  How it ended stands in /proc until the command collects it, so a command
    that collects late loses nothing: ``os.waitid`` with WNOWAIT waits and collects nothing, while
    a ``subprocess.Popen`` collects even as it is finalized.  With the command's own end those of
    its ranks are gone, so it has to outlive the last of them by some seconds.
    """

    def start_command(
        self, plan: JobPlan, environment: dict[str, str], program: list[str]
    ) -> list[str]:
        """The command that starts the ranks, as ``python PROGRAM`` each.

        ``environment`` is the command's, to which entries may be added.
        """
        raise NotImplementedError

    def command(self) -> list[str]:
        return [sys.executable, "-m", "hanglab.harness.launchers.supervision.command_ranks"]

    def order(self, plan: JobPlan, environment: dict[str, str]) -> Message:
        _add_hook(environment)
        script = os.path.abspath(plan.script)
        if plan.function is not None:
            program = ["-m", "hanglab.harness.rank.entry", script, plan.function]
        elif environment.get(SHARED_GPU):
            program = ["-m", "hanglab.harness.rank.shared_gpu", script]
        elif backend_of(plan.backend).emulated:
            program = ["-m", "hanglab.harness.rank.emulated_device", script]
        else:
            program = [script]
        program += plan.arguments
        return {"command": self.start_command(plan, environment, program)}


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
