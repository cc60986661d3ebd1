"""Users of this host at the other end of a connection on loopback."""

from __future__ import annotations

import socket
import struct

from hanglab.recorder.system.kernel_files import read


def user_of_peer(connection: socket.socket) -> int | None:
    """User to whom the other end's socket belongs, by the kernel's table; None if not told."""
    peer, own = connection.getpeername(), connection.getsockname()
    # A v6 listener has peers of v4, too, in either table.
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            wanted = _end(family, peer), _end(family, own)
        except OSError:
            continue
        for line in (read(f"/proc/thread-self/net/{name}") or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 7 and (words[1], words[2]) == wanted and words[7].isdecimal():
                return int(words[7])
    return None


def _end(family: socket.AddressFamily, address: tuple[str, int]) -> str:
    """An end as the kernel prints it: words of four bytes in the machine's order."""
    data = socket.inet_pton(family, address[0])
    words = [struct.unpack("=I", data[at : at + 4])[0] for at in range(0, len(data), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
