"""The first process of a node's container: starts its ranks and the recorder beside them.

``python -m hanglab.harness.launchers.docker.node_main ORDER``, where ORDER is a
JSON file as :mod:`hanglab.harness.launchers.docker.containers` writes it.

hanglab talks to it over a socket in a folder that both see, so that no fault of
the network cuts them off, and that the Docker daemon may be away.  When hanglab
is gone the container ends, and everything in it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import NoReturn

from hanglab.harness.launchers.docker import container_paths
from hanglab.harness.launchers.nodes.processes import NodeProcesses
from hanglab.harness.launchers.supervision.channel import MessageChannel


class ContainerProcesses(NodeProcesses):
    """Everything that runs in this container besides this process."""

    def others(self) -> set[int]:
        spared = {os.getpid()}
        if self.agent is not None:
            spared |= {self.agent, *container_paths.below(self.agent)}
        return container_paths.everyone() - spared

    def gone(self) -> NoReturn:
        os._exit(1)  # all that runs here ends with this process

    def left(self) -> None:
        sys.stdout.flush()


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.connect(container_paths.LINK)
    link = MessageChannel(end)
    link.send({"event": "hello", "node": order["number"]})
    try:
        ContainerProcesses(order, link, container_paths.NODE).run()
    except OSError as error:
        link.send({"event": "failed", "error": f"{error.strerror or error}: {error.filename}"})
        raise


if __name__ == "__main__":
    main()
