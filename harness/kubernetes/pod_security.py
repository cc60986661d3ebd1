"""Rights of containers, and which of the Pod Security Standards a pod keeps.

Measured with py-spy on a process of another user in another mount namespace: root needs
CAP_SYS_PTRACE for its stacks, and CAP_DAC_READ_SEARCH besides for its environment, by which
ranks are told; who is of the same user needs neither, unless ``kernel.yama.ptrace_scope`` is 1
or more.  Linux gives a process that is not root's none of the capabilities that a manifest adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

Manifest = dict[str, Any]
Level = Literal["restricted", "baseline", "privileged"]

#: Capabilities that the standard "baseline" lets a container add.
_BASELINE = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
        "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
_HOSTS = ("hostPID", "hostNetwork", "hostIPC")


def unprivileged(user: int) -> Manifest:
    """Rights of a container that needs none."""
    return _context(user, [])


def looks_into_processes(user: int, ranks_of: int | None) -> Manifest:
    """Rights to read stacks and environments of processes of ``ranks_of``, or of anybody.

    ``user`` must be 0: capabilities reach root alone.
    """
    return _context(user, ["SYS_PTRACE"] + (["DAC_READ_SEARCH"] if ranks_of != user else []))


def _context(user: int, added: list[str]) -> Manifest:
    return {
        "runAsUser": user,
        "runAsGroup": user,
        "runAsNonRoot": user != 0,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **({"add": added} if added else {})},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def level_of(spec: Manifest) -> tuple[Level, list[str]]:
    """The strictest of the Pod Security Standards that a pod keeps, and what keeps it from more.

    Looks at what manifests of hanglab can hold, which is not all that there is.
    """
    beyond = [f"{name}: true" for name in _HOSTS if spec.get(name)]
    beyond += [
        f"the volume {volume['name']} is a folder of the node"
        for volume in spec.get("volumes", ())
        if "hostPath" in volume
    ]
    unrestricted = []
    for container in containers(spec):
        context = container.get("securityContext", {})
        added = set(context.get("capabilities", {}).get("add", ()))
        name = container["name"]
        if more := sorted(added - _BASELINE):
            beyond.append(f"container {name} adds {', '.join(more)}")
        if context.get("privileged"):
            beyond.append(f"container {name} is privileged")
        if not context.get("runAsNonRoot"):
            unrestricted.append(f"container {name} may run as root")
        if context.get("allowPrivilegeEscalation", True):
            unrestricted.append(f"container {name} may gain rights")
        if "ALL" not in context.get("capabilities", {}).get("drop", ()):
            unrestricted.append(f"container {name} keeps capabilities")
        if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            unrestricted.append(f"container {name} has no seccomp profile")
    if beyond:
        return "privileged", beyond
    return ("baseline", unrestricted) if unrestricted else ("restricted", [])


def containers(spec: Manifest) -> Iterator[Manifest]:
    """All containers of a pod, those that start first among them."""
    yield from spec.get("initContainers", ())
    yield from spec["containers"]
