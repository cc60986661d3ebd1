"""hanglab's process in a pod: starts the ranks there, and hands over what was recorded.

``python -m hanglab.harness.launchers.kubernetes.node_main``, run by an exec of the API, which
carries commands to standard input and events from standard output, and lets nobody else at them.
The end of standard input says that hanglab is gone: then this process ends, and the pod with it.
"""

from __future__ import annotations

import base64
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from hanglab.harness.launchers.kubernetes.files import PIECE
from hanglab.harness.launchers.kubernetes.pods import NODE_FILE
from hanglab.harness.launchers.nodes.remote_processes import RemoteProcesses, serve
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.recorder.case.folders import HOSTS
from hanglab.recorder.system.host_name import host_name


class PodProcesses(RemoteProcesses):
    """Everything of the job that runs in this pod besides this process and the pod's first one."""

    def asked_to_end(self) -> None:
        self.tell({"event": "asked_to_end"})
        # As by other schedulers, of which each process hears.
        for pid in self.ranks.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def gone(self) -> NoReturn:
        self.end_ranks()
        _end_pod()
        os._exit(1)

    def left(self) -> None:
        for kind, folder in (("case", self.paths.case / HOSTS), ("log", self.paths.log)):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    self._hand_over(f"{kind}/{path.relative_to(folder)}", path)
        super().left()
        _end_pod()

    def _hand_over(self, name: str, path: Path) -> None:
        with suppress(OSError), path.open("rb") as file:
            first = True
            while (data := file.read(PIECE)) or first:
                first = False
                text = base64.b64encode(data).decode()
                self.tell({"event": "file", "path": name, "data": text})


def _prepare(order: Message) -> None:
    Path(order["case"]).mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(order["log"]).mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(order["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in order["program"].items():
        (folder / name).write_text(text)


def _end_pod() -> None:
    """Lets the pod's first process go; it may not have looked since this one came."""
    with suppress(OSError):
        os.unlink(NODE_FILE)
        os.kill(1, signal.SIGTERM)


def main() -> None:
    Path(NODE_FILE).write_text(str(os.getpid()))
    try:
        serve(PodProcesses, {"name": host_name()}, _prepare)
    finally:
        _end_pod()


if __name__ == "__main__":
    main()
