"""All faults that a scenario can declare, and what each needs of the machine."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from hanglab.harness import faults
from hanglab.harness.faults.device import DeviceFault
from hanglab.harness.faults.fault import Fault, SignalFault
from hanglab.harness.faults.host_fault import HostFault, LastingFault
from hanglab.harness.faults.limits import LimitFault
from hanglab.harness.faults.link import LinkFault

#: What others are made from.
_FAMILIES = (Fault, SignalFault, LimitFault, HostFault, LastingFault, DeviceFault, LinkFault)


def all_faults() -> list[type[Fault]]:
    """All faults by name."""
    found = set()
    for module in pkgutil.walk_packages(faults.__path__, f"{faults.__name__}."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, Fault) and kind not in _FAMILIES:
                found.add(kind)
    return sorted(found, key=lambda kind: kind.__name__)
