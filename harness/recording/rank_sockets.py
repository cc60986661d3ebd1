"""Ends of the TCP connections of ranks, by which those of one job find each other."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hanglab.recorder.system.sockets import from_proc, socket_inodes

#: A network in which the address means something ("" of all), the address, and a port.
ScopedEnd = tuple[str, str, int]

#: States of a connection that is wanted at both ends, as far as this one knows.
_LIVE = ("ESTABLISHED", "SYN_SENT", "SYN_RECV")


class RankSocket(NamedTuple):
    """One connection of a rank."""

    local: ScopedEnd
    remote: ScopedEnd
    live: bool

    @property
    def ours(self) -> tuple[ScopedEnd, int]:
        """Words for the connection that the other end has for it, too, as its ``theirs``.

        The address that was called is left out: where a service has one of its own, the two ends
        know different ones.
        """
        return self.local, self.remote[2]

    @property
    def theirs(self) -> tuple[ScopedEnd, int]:
        return self.remote, self.local[2]


def sockets_of(pids: Sequence[int], network: str) -> list[RankSocket]:
    """Connections that processes of one network hold; none where they may not be read."""
    table = from_proc(pids[0])
    found = (table[inode] for pid in pids for inode in socket_inodes(pid) if inode in table)
    return [
        RankSocket(_end(one.local, network), _end(one.remote, network), one.state in _LIVE)
        for one in found
        if one.state != "LISTEN"
    ]


def ends_of_store(sockets: Iterable[RankSocket], port: int) -> set[ScopedEnd]:
    """Addresses at which a job's store is reached, or served, over these connections."""
    ends = {end for one in sockets if one.live for end in (one.local, one.remote)}
    return {end for end in ends if end[2] == port}


def store_named(address: str, port: int, network: str) -> ScopedEnd | None:
    """The end that a literal address means; None of a name, which each network may read its way."""
    try:
        return scoped("127.0.0.1" if address == "localhost" else address, port, network)
    except ValueError:
        return None


def scoped(address: str, port: int, network: str) -> ScopedEnd:
    """The end as it can be compared with those of other networks.  Raises ValueError."""
    parsed = ipaddress.ip_address(address)
    local = parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified
    return network if local else "", str(parsed), port


def _end(text: str, network: str) -> ScopedEnd:
    host, _, port = text.rpartition(":")
    return scoped(host.strip("[]"), int(port), network)
