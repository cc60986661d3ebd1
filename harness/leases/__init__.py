"""Leases: what jobs of one machine share, each held by a file lock that dies with its holder."""

from __future__ import annotations

from hanglab.harness.leases.folder import leases_folder
from hanglab.harness.leases.slots import CpuSlots

__all__ = ["CpuSlots", "leases_folder"]
