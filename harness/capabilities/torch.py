"""torch, and what its build can do."""

from __future__ import annotations

import importlib.metadata
import sys

from hanglab.harness.capabilities.registry import Capability, capability, checks


@checks("torch")
def _torch() -> Capability:
    """Told without importing it, which takes seconds."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Capability("torch", False, "not installed", "pip install 'hanglab[run]'")
    return Capability("torch", True, f"torch {version}")


#: From here on Kineto starts its on-demand side in processes without a GPU, too.
_KINETO_RELEASE = (2, 7)


@checks("on_demand_traces")
def _on_demand_traces() -> Capability:
    """True if `hanglab profile` can reach processes of the installed torch."""
    torch = capability("torch")
    name = "on_demand_traces"
    if not torch.available:
        return Capability(name, False, "torch is not installed", torch.remedy)
    return judge_kineto(torch.reason.removeprefix("torch "))


def judge_kineto(version: str) -> Capability:
    """Judge by the version of torch alone; one that cannot be read counts as able."""
    name = "on_demand_traces"
    parts = version.split(".")
    if all(part.isdecimal() for part in parts[:2]) and len(parts) >= 2:
        release = int(parts[0]), int(parts[1])
        if release < _KINETO_RELEASE:
            reason = f"Kineto of torch {version} does not take requests on every machine"
            return Capability(name, False, reason, "pip install 'torch>=2.7'")
    return Capability(name, True, f"Kineto of torch {version}")


@checks("gloo")
def _gloo() -> Capability:
    if not capability("torch").available:
        return Capability("gloo", False, "torch is not installed", "pip install 'hanglab[run]'")
    if not sys.platform.startswith("linux"):
        return Capability("gloo", False, f"hanglab runs jobs on Linux, not {sys.platform}")
    return Capability("gloo", True, "part of torch")


@checks("nccl-emulated")
def _nccl_emulated() -> Capability:
    gloo = capability("gloo")
    if not gloo.available:
        return Capability("nccl-emulated", False, gloo.reason, gloo.remedy)
    return Capability("nccl-emulated", True, "a thread of each rank stands for its GPU")
