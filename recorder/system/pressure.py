"""Pressure stall information: of the host, and of control groups that have it.

Format: the kernel's accounting/psi.
"""

from __future__ import annotations

import os
from typing import Literal

from hanglab.recorder.case.host_records import Pressure
from hanglab.recorder.system.kernel_files import read

Resource = Literal["cpu", "memory", "io"]
RESOURCES: tuple[Resource, ...] = ("cpu", "memory", "io")


def parse(text: str, resource: Resource, group: str = "") -> Pressure | None:
    """None where the text is not of the format."""
    rows: dict[str, tuple[float, float]] = {}
    for line in text.splitlines():
        kind, *pairs = line.split()
        values = dict(pair.partition("=")[::2] for pair in pairs)
        try:
            rows[kind] = float(values["avg10"]), int(values["total"]) / 1e6
        except (KeyError, ValueError):
            return None
    if "some" not in rows:
        return None
    full = rows.get("full")
    return Pressure(
        resource=resource,
        some_percent=rows["some"][0],
        some_s=rows["some"][1],
        full_percent=full[0] if full else None,
        full_s=full[1] if full else None,
        group=group,
    )


def pressures(folders: list[str]) -> list[Pressure]:
    """The host's, then those of the unified control groups in ``folders``."""
    found = []
    for resource in RESOURCES:
        text = read(f"/proc/pressure/{resource}")
        found.append(parse(text, resource) if text else None)
        for folder in folders:
            text = read(f"{folder}/{resource}.pressure")
            found.append(parse(text, resource, os.path.basename(folder)) if text else None)
    return [pressure for pressure in found if pressure is not None]
