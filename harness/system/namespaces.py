"""Reaching into a container's namespaces from its host.  Needs root, nsenter, iptables and tc."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

_CLONE_NEWNET = 0x40000000
#: Where Debian keeps tools that are often not on the path of a user.
_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
_PATIENCE_S = 10.0


def tool(name: str) -> str | None:
    """Path of a program of the host, None where it has none."""
    return shutil.which(name, path=_PLACES)


def in_network(pid: int, *command: str) -> str:
    """Runs a program of the host in the network namespace of a process; gives its output.

    Raises OSError, with what the program said.
    """
    return _enter("-n", pid, command)


def in_mounts(pid: int, *command: str) -> str:
    """Arguments that run a program of a process's mount namespace in it."""
    return _enter("-m", pid, command)


def _enter(namespace: str, pid: int, command: tuple[str, ...]) -> str:
    nsenter = tool("nsenter")
    program = tool(command[0]) if namespace == "-n" else command[0]
    if nsenter is None or program is None:
        raise OSError(f"{'nsenter' if nsenter is None else command[0]} is not installed")
    try:
        ran = subprocess.run(
            [nsenter, "-t", str(pid), namespace, program, *command[1:]],
            check=False,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{' '.join(command)}: no answer within {_PATIENCE_S:g} s") from None
    if ran.returncode:
        said = ran.stderr.strip().splitlines()
        raise OSError(f"{' '.join(command)}: {said[-1] if said else f'code {ran.returncode}'}")
    return ran.stdout


def call_in_network(pid: int, function: Callable[[], Answer]) -> Answer:
    """Calls ``function`` in a thread that has entered the network namespace of a process.

    Sockets that it opens stay there.  Raises OSError, also what ``function`` raises.
    """
    answers: list[Answer] = []
    failures: list[BaseException] = []

    def enter() -> None:
        try:
            descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(descriptor, _CLONE_NEWNET):
                    error = ctypes.get_errno()
                    raise OSError(error, os.strerror(error))
            finally:
                os.close(descriptor)
            answers.append(function())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=enter, name="hanglab-namespace", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return answers[0]


def connect(pid: int, address: str, port: int, patience_s: float) -> str:
    """Try a TCP connection from a process's network namespace.

    ``open``, ``refused``, ``silent`` (nothing within ``patience_s``) or the
    system's words for another error.
    """

    def attempt() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.settimeout(patience_s)
            try:
                sock.connect((address, port))
            except ConnectionRefusedError:
                return "refused"
            except TimeoutError:
                return "silent"
            except OSError as failure:
                return failure.strerror or str(failure)
            return "open"

    return call_in_network(pid, attempt)
