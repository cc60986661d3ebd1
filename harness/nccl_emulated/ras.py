"""Answers as NCCL's RAS service gives them, of the communicators of this process.

Every process of a job listens at ``NCCL_RAS_ADDR``, and the kernel picks one of them for a client;
where the variable is not set, nobody listens, as jobs that know nothing of each other would meet
at NCCL's own port.  Lines and fields are those of NCCL 2.28 and later
(``src/ras/client_support.cc``).  Members' states stand in the memory that they share, so that no
peer has to be asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from hanglab.harness.nccl_emulated.communicator import Communicator
from hanglab.harness.nccl_emulated.segment import COUNTED
from hanglab.recorder.case.backends import EMULATED_LIBRARY

#: ``NCCL_RAS_CLIENT_PROTOCOL``
_PROTOCOL = 2
#: For a client that says nothing, in seconds.
_PATIENCE_S = 5.0
_LONGEST_LINE = 1024


class RasService:
    """Listens for clients until the process ends.  Raises OSError where that is not possible."""

    def __init__(self, address: str, communicators: Callable[[], Sequence[Communicator]]) -> None:
        host, _, port = address.rpartition(":")
        self._communicators = communicators
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]") or "localhost", int(port))[0]
        self._socket = socket.socket(family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(place)
        self._socket.listen()
        threading.Thread(target=self._serve, name="hanglab-ras", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(
                target=self._talk, args=(connection,), name="hanglab-ras-client", daemon=True
            ).start()

    def _talk(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rwb") as stream:
            connection.settimeout(_PATIENCE_S)
            structured = False
            while line := stream.readline(_LONGEST_LINE):
                said = line.decode("ascii", "replace").strip()
                words = said.lower()
                if words in ("status", "verbose status"):
                    status = self.status()
                    text = json.dumps(status, indent=2) if structured else in_words(status)
                    stream.write(text.encode() + b"\n")
                    return
                if words.startswith("set format ") and words.split()[-1] in ("text", "json"):
                    structured = words.endswith("json")
                stream.write(answer(said).encode() + b"\n")
                stream.flush()

    def status(self) -> dict[str, Any]:
        """The JSON document of the communicators that this process is a member of."""
        begun = time.monotonic()
        found = [_described(one) for one in self._communicators()]
        return {
            "nccl_version": EMULATED_LIBRARY,
            "cuda_runtime_version": 0,
            "cuda_driver_version": 0,
            "timestamp": time.strftime("%F %T"),
            "communicators_count": len(found),
            "communicators": found,
            "ras": {
                "collection_time_sec": round(time.monotonic() - begun, 3),
                "timeouts_count": 0,
            },
        }


def answer(said: str) -> str:
    """The line that answers one of a client's that asks for no status."""
    words = said.lower()
    given = said.split(" ")[-1]
    if words.startswith("client protocol "):
        return f"SERVER PROTOCOL {_PROTOCOL}"
    if words.startswith("timeout "):
        with contextlib.suppress(ValueError):
            if 0 <= float(given) < float("inf"):
                return "OK"
        return f"ERROR: Invalid timeout value {given}"
    if words.startswith("set format "):
        return "OK" if given.lower() in ("text", "json") else f"ERROR: Invalid format {given}"
    return f"ERROR: Unknown command {said}"


def in_words(status: dict[str, Any]) -> str:
    """The answer to a client that wants no JSON; its list of communicators is our own."""
    pids = {
        member["pid"]
        for one in status["communicators"]
        for member in (*one["ranks"], *one["missing_ranks"])
    }
    lines = [
        f"NCCL version {status['nccl_version']} compiled with CUDA 0.0",
        "CUDA runtime version 0, driver version 0",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{1:7}  {len(pids):9}  {1:11}  {len(pids):9}  {len(pids):7}",
        "",
        "Communicators... (0.00s)",
        "=============",
        "",
    ]
    for one in status["communicators"]:
        missing = [str(member["rank"]) for member in one["missing_ranks"]]
        lines.append(
            f"{one['hash']}: {one['size']} ranks"
            + (f", no answer from {', '.join(missing)}" if missing else "")
        )
    return "\n".join(lines)


def _described(communicator: Communicator) -> dict[str, Any]:
    members = [communicator.member(rank) for rank in range(communicator.size)]
    there, missing = [], []
    for rank, member in enumerate(members):
        row = {
            "rank": rank,
            "host": "127.0.0.1",
            "pid": member.pid,
            "cuda_dev": rank,
            "nvml_dev": rank,
        }
        dead = not _runs(member.pid)
        if dead or not member.is_member:
            status = {"unresponsive": dead, "considered_dead": dead}
            missing.append({**row, "status": status})
            continue
        there.append(
            {
                **row,
                "status": {
                    "init_state": 0,
                    "async_error": member.async_error,
                    "finalize_called": False,
                    "destroy_flag": False,
                    "abort_flag": member.aborted,
                },
                "collective_counts": dict(zip(COUNTED, member.counts, strict=True)),
            }
        )
    name = zlib.crc32(repr([member.pid for member in members]).encode())
    return {
        "hash": f"0x{communicator.identity:x}",
        "secondary_hash": f"0x{name:x}:0x{members[0].pid:x}",
        "size": communicator.size,
        "ranks_count": len(there),
        "missing_ranks_count": len(missing),
        "ranks": there,
        "missing_ranks": missing,
    }


def _runs(pid: int) -> bool:
    """True unless the process has ended; one that its parent has not waited for has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


_SERVICE: RasService | None = None


def serve_if_asked(communicators: Callable[[], Sequence[Communicator]]) -> None:
    """Begin to answer where ``NCCL_RAS_ADDR`` says where, as with the first communicator.

    A port that cannot be had leaves the job as it is, as in NCCL.
    """
    global _SERVICE
    address = os.environ.get("NCCL_RAS_ADDR", "")
    if _SERVICE is None and address and os.environ.get("NCCL_RAS_ENABLE") != "0":
        with contextlib.suppress(OSError, ValueError):
            _SERVICE = RasService(address, communicators)


def _forget_in_child() -> None:
    global _SERVICE
    if _SERVICE is not None:
        with contextlib.suppress(OSError):
            _SERVICE._socket.close()
    _SERVICE = None


os.register_at_fork(after_in_child=_forget_in_child)
