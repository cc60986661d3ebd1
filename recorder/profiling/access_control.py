"""Access: who may ask the agent for something, and where traces may be written."""

from __future__ import annotations

import hmac
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

#: A shorter token can be guessed.
MIN_TOKEN = 16


class Refused(Exception):
    """A request that is not carried out; its text says why and what would help."""


def is_loopback(address: str) -> bool:
    """True if an address to listen on can only be reached from this host."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_token(expected: str | None, given: object) -> None:
    """Raises Refused unless the token is the agreed one; None: none is needed."""
    if expected is None:
        return
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), expected.encode()):
        raise Refused("a token is needed, and the one that came with the request is not it")


def confined(path: str, root: Path) -> str:
    """The path, if it lies below the root whatever links say.  Raises Refused."""
    if not os.path.isabs(path):
        raise Refused(f"{path!r} is not an absolute path")
    real_root = os.path.realpath(root)
    # Of a file that is yet to be written, the folder must exist: links in it are followed here.
    folder = os.path.realpath(os.path.dirname(path))
    name = os.path.basename(path)
    if name in ("", ".", "..") or os.path.commonpath([folder, real_root]) != real_root:
        raise Refused(
            f"traces are written below {real_root} only; start the agent with another "
            "--output-root, or ask for a path there"
        )
    if not os.path.isdir(folder):
        raise Refused(f"the folder {folder} does not exist")
    return os.path.join(folder, name)


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS for the agent's side.  Raises OSError and ssl.SSLError."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def client_tls(authority: Path) -> ssl.SSLContext:
    """TLS for the asking side, which trusts this certificate or authority and no other."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(authority)
    # Hosts of a cluster go by many names; the shared certificate is what is checked.
    context.check_hostname = False
    return context
