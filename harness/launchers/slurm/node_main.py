"""hanglab's process on a node of Slurm, a step of its own: starts the ranks there.

``python -m hanglab.harness.launchers.slurm.node_main NUMBER NONCE``.  Commands come on standard
input and events go to standard output, which Slurm carries to hanglab and lets nobody else at.
The end of standard input says that hanglab is gone: then this process ends the ranks, gives the
job back to Slurm, and ends.  NONCE is a file that hanglab wrote beside the Case.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from hanglab.harness.launchers.nodes.processes import NodeChannel, NodePaths
from hanglab.harness.launchers.nodes.remote_processes import RemoteProcesses, serve
from hanglab.harness.launchers.protocol import LaunchError
from hanglab.harness.launchers.slurm.submission import cancel
from hanglab.harness.launchers.supervision.channel import Message


class SlurmProcesses(RemoteProcesses):
    """Everything of the job that runs on this node besides this process."""

    def __init__(self, order: Message, channel: NodeChannel, paths: NodePaths) -> None:
        super().__init__(order, channel, paths)
        self._beat = Path(order["beat"])

    def asked_to_end(self) -> None:
        # The ranks were asked, too: hanglab has them captured while Slurm still waits.
        self.tell({"event": "asked_to_end"})

    def gone(self) -> NoReturn:
        self.end_ranks()
        self.left()
        with suppress(OSError):
            self._beat.unlink()
        with suppress(LaunchError):
            cancel(os.environ["SLURM_JOB_ID"])
        os._exit(1)


def main() -> None:
    number, nonce = int(sys.argv[1]), Path(sys.argv[2])
    try:
        seen = nonce.read_text()
    except OSError as error:
        seen = f"error: {error.strerror}"
    serve(SlurmProcesses, {"node": number, "seen": seen}, lambda order: None)


if __name__ == "__main__":
    main()
