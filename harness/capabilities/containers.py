"""Docker."""

from __future__ import annotations

import os
import socket

from hanglab.harness.capabilities.registry import Capability, probe


@probe("docker")
def _docker() -> Capability:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    remedy = "start Docker, and let this user talk to it"
    if not host.startswith("unix://"):
        return Capability("docker", True, f"DOCKER_HOST is {host}")
    path = host.removeprefix("unix://")
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(3)
            probe.connect(path)
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            answer = probe.recv(64)
    except OSError as failure:
        return Capability("docker", False, f"{path}: {failure.strerror or failure}", remedy)
    if b" 200 " not in answer:
        return Capability("docker", False, f"{path} does not answer like Docker", remedy)
    return Capability("docker", True, f"answers at {path}")
