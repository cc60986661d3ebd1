"""Capabilities for faults that are done to a node from its host: each is tried out on nobody.

A network namespace made for the trial ends with its process, and so does what was set there.
"""

from __future__ import annotations

import shlex
import subprocess

from hanglab.harness.capabilities.registry import Capability, capability, checks, tried
from hanglab.harness.system.namespaces import tool

_PATIENCE_S = 20


def _refused(name: str, *tools: str) -> Capability | None:
    """The reason that hanglab cannot reach into containers at all."""
    for needed, said in (("docker", "no Docker"), ("root", "not root")):
        found = capability(needed)
        if not found.available:
            return Capability(name, False, said, found.remedy)
    packages = {"nsenter": "util-linux", "unshare": "util-linux", "prlimit": "util-linux"}
    packages |= {"iptables": "iptables", "tc": "iproute2"}
    for needed in ("nsenter", "unshare", *tools):
        if tool(needed) is None:
            remedy = f"apt-get install {packages[needed]}"
            return Capability(name, False, f"{needed} is not installed", remedy)
    return None


def _in_new_network(*command: str) -> str:
    """The error of a command that fails to run there; nothing where it runs."""
    program = tool(command[0])
    unshare = tool("unshare")
    assert program is not None and unshare is not None
    try:
        ran = subprocess.run(
            [unshare, "--net", program, *command[1:]],
            check=False,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return str(failure)
    if not ran.returncode:
        return ""
    said = ran.stderr.strip().splitlines()
    return f"{command[0]}: {said[0] if said else f'code {ran.returncode}'}"


def _filter(*rule: str) -> str:
    return _in_new_network("iptables", "-w", "-I", "INPUT", *rule)


def _discipline(*words: str) -> str:
    return _in_new_network("tc", "qdisc", "add", "dev", "lo", "root", *words)


@checks("outside_processes")
def _processes() -> Capability:
    """Entering the namespaces of a node, and changing the limits of its processes."""
    name = "outside_processes"
    refused = _refused(name, "prlimit")
    return refused or Capability(name, True, "root can enter the nodes' namespaces")


@checks("outside_filter")
def _packet_filter() -> Capability:
    name = "outside_filter"
    refused = _refused(name, "iptables")
    if refused:
        return refused
    said = _filter("-m", "comment", "--comment", "hanglab", "-j", "DROP")
    said = said or _filter("-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
    if said:
        remedy = "load the kernel's modules xt_comment and ipt_REJECT"
        return Capability(name, False, said, remedy)
    return Capability(name, True, "iptables drops and refuses packets")


@checks("outside_rate")
def _rate() -> Capability:
    name = "outside_rate"
    refused = _refused(name, "tc")
    if refused:
        return refused
    said = _discipline(*shlex.split("tbf rate 1mbit burst 32kb latency 400ms"))
    if said:
        return Capability(name, False, said, "load the kernel's module sch_tbf")
    return Capability(name, True, "the kernel has the queueing discipline tbf")


@checks("outside_delay")
def _delay() -> Capability:
    name = "outside_delay"
    refused = _refused(name, "iptables")
    if refused:
        return refused
    said = _filter("-j", "NFQUEUE", "--queue-num", "1", "--queue-bypass")
    if said:
        return Capability(name, False, said, "load the kernel's module xt_NFQUEUE")
    return Capability(name, True, "packets can wait in a queue of the packet filter (NFQUEUE)")


@checks("outside_storage")
def _storage() -> Capability:
    name = "outside_storage"
    refused = _refused(name)
    if refused:
        return refused
    return tried(
        name,
        "from hanglab.harness.system.file_server import FileServer\n"
        "with FileServer(4096) as server:\n"
        "    assert len(open(server.folder + '/data', 'rb').read()) == 4096",
        "a file system can be served to a node, and stop answering",
        "run as root where /dev/fuse is (in a container: --device /dev/fuse --cap-add SYS_ADMIN)",
    )
