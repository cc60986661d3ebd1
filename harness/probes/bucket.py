"""Whether a token bucket held packets back, by the kernel's count."""

from __future__ import annotations

import os
import re

from hanglab.harness.faults.outside.namespaces import in_network
from hanglab.harness.probes.probe import Reading

_HELD = re.compile(r"Sent (\d+) bytes (\d+) pkt \(dropped (\d+), overlimits (\d+)")
#: Packets that had to wait: fewer may be one burst at the start.
_FEWEST = 20


class BucketProbe:
    def __init__(self, pid: int, device: str) -> None:
        self._pid, self._device = pid, device
        if "tbf" in self._shown():
            raise OSError(f"{device} has a token bucket already")

    def struck(self) -> Reading:
        shown = self._shown()
        match = _HELD.search(shown) if "tbf" in shown else None
        sent, packets, dropped, held = (int(word) for word in match.groups()) if match else [0] * 4
        return Reading(
            held >= _FEWEST,
            f"{held} times a packet had to wait, {dropped} were dropped",
            {"sent_bytes": sent, "packets": packets, "dropped": dropped, "held": held},
        )

    def ended(self) -> Reading:
        if not os.path.exists(f"/proc/{self._pid}/ns/net"):
            return Reading(True, "the container has gone")
        gone = "tbf" not in self._shown()
        return Reading(gone, f"{self._device} has {'no' if gone else 'a'} token bucket")

    def _shown(self) -> str:
        return in_network(self._pid, "tc", "-s", "qdisc", "show", "dev", self._device)
