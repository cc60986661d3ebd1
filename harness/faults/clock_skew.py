"""A node whose clock is wrong, as where no time service runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import LastingFault
from hanglab.harness.faults.proof import Reading
from hanglab.harness.hosts import Host, Hosts, HostSettings

#: Where Debian keeps it; the loader replaces $LIB by lib/x86_64-linux-gnu or its like.
_LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"


@dataclass(frozen=True, kw_only=True)
class ClockSkew(LastingFault):
    """The node's wall clock is ``seconds`` ahead (or behind, if negative) from the start.

    libfaketime does it to every process of the node, the recorder's agent
    included; monotonic clocks and the times of files stay true.
    """

    seconds: float

    def settings(self, number: int, settings: HostSettings) -> None:
        if self.rank not in settings.ranks:
            return
        settings.environment.update(
            LD_PRELOAD=_LIBRARY,
            FAKETIME=f"{self.seconds:+g}",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
            # With its mend for old C libraries waits by monotonic clocks, as for Python's GIL,
            # end at once, and those who wait use up their processor.
            FAKETIME_FORCE_MONOTONIC_FIX="0",
            FAKETIME_DISABLE_SHM="1",
            NO_FAKE_STAT="1",
        )

    def strike_host(self, hosts: Hosts) -> None:
        """Done before: the host was made with it, and it ends with the host."""

    def probe(self, hosts: Hosts) -> ClockProbe:
        return ClockProbe(hosts.of_rank(self.rank), self.seconds)


#: How far the answer may be off: asking takes a while, on a machine under load longer.
_TOLERANCE_S = 2.0


class ClockProbe:
    """``date`` on the host, between two looks at the clock of this machine."""

    def __init__(self, host: Host, seconds: float) -> None:
        self._host, self._seconds = host, seconds

    def struck(self) -> Reading:
        begun = time.time()
        said = self._host.run("date", "+%s.%N")
        ended = time.time()
        ahead = float(said) - (begun + ended) / 2
        near = abs(ahead - self._seconds) <= _TOLERANCE_S + (ended - begun) / 2
        return Reading(
            near,
            f"its clock is {ahead:+.1f} s from this machine's",
            {"ahead_s": round(ahead, 3), "asking_s": round(ended - begun, 3)},
        )

    def ended(self) -> Reading:
        return Reading(True, "the clock is the node's own, and gone with it")
