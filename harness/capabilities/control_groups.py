"""Control groups that limits can be set in."""

from __future__ import annotations

from hanglab.harness.capabilities.registry import Capability, checks


def _cgroup(controller: str) -> Capability:
    from hanglab.harness.system.cgroups import NoGroup, make

    name = f"cgroup_{controller}"
    try:
        made = make(controller)
    except NoGroup as failure:
        remedy = "run as root on a host (in a container: --privileged) that has the controller"
        return Capability(name, False, str(failure), remedy)
    made.remove()
    return Capability(name, True, f"version {made.version} at {made.folder.parent}")


@checks("cgroup_cpu")
def _cgroup_cpu() -> Capability:
    return _cgroup("cpu")


@checks("cgroup_memory")
def _cgroup_memory() -> Capability:
    return _cgroup("memory")


@checks("cgroup_pids")
def _cgroup_pids() -> Capability:
    return _cgroup("pids")
