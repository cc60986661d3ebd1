"""Capabilities of this machine: one registry for ``needs``, ``doctor`` and whoever skips."""

from __future__ import annotations

# In the order in which they are shown.
# isort: off
from hanglab.harness.capabilities import (  # noqa: F401
    torch,
    devices,
    containers,
    slurm,
    kubernetes,
    process,
    control_groups,
    mounts,
    outside,
)
from hanglab.harness.capabilities.registry import (
    Capability,
    all_capabilities,
    capability,
    names,
)
from hanglab.harness.capabilities.torch import judge_kineto

# isort: on

__all__ = ["Capability", "all_capabilities", "capability", "judge_kineto", "names"]
