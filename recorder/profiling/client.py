"""The asking side: an agent of hanglab's, or a dynolog daemon, on one host."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from hanglab.recorder.profiling import wire
from hanglab.recorder.profiling.receipts import Asked, ProcessState, Receipt

#: Seconds for an agent to look at all its processes.
_LOOK_S = 60.0


class AgentUnreachable(Exception):
    """Nobody answers there; its text says why."""


class AgentRefused(Exception):
    """The agent answered that it will not; its text says why."""


@dataclass(frozen=True)
class Status:
    """One host's registered processes."""

    host: str
    processes: list[ProcessState]
    #: The host's wall clock minus ours, in milliseconds.
    offset_ms: float


@dataclass(frozen=True)
class Door:
    """Where an agent listens and what it wants to see."""

    host: str
    port: int
    token: str | None = None
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def ask(door: Door, message: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """One request and its answer.  Raises AgentUnreachable and AgentRefused."""
    if door.token is not None:
        message = {**message, "token": door.token}
    try:
        with contextlib.ExitStack() as stack:
            # All of a name's addresses are tried, in order.
            connection = stack.enter_context(
                socket.create_connection((door.host, door.port), timeout=timeout_s)
            )
            if door.tls is not None:
                connection = stack.enter_context(
                    door.tls.wrap_socket(connection, server_hostname=door.host)
                )
            answer = wire.exchange(connection, message, timeout_s)
    except ssl.SSLError as error:
        raise AgentUnreachable(f"{door}: TLS failed: {error.reason or error}") from None
    except OSError as error:
        raise AgentUnreachable(f"{door}: {error.strerror or error}") from None
    except wire.BadMessage as error:
        raise AgentUnreachable(f"{door}: its answer cannot be read: {error}") from None
    if "error" in answer:
        raise AgentRefused(str(answer["error"]))
    return answer


def is_dynolog(door: Door) -> bool:
    """Whether a dynolog daemon answers there: it knows none of hanglab's requests.

    Raises AgentUnreachable.
    """
    with contextlib.suppress(AgentRefused, AgentUnreachable):
        ask(door, {"fn": "hanglab.status"})
        return False
    return ask(door, {"fn": "getStatus"}).get("status") == 1


def status(door: Door, look: Literal["", "briefly", "thoroughly"] = "") -> Status:
    """Who is registered.  Raises AgentUnreachable and AgentRefused.

    ``look``: have the agent see first which of them stand still; it takes a second or more.
    """
    if look:
        ask(door, {"fn": "hanglab.status", "look": look}, _LOOK_S)
    before = time.time()
    answer = ask(door, {"fn": "hanglab.status"})
    after = time.time()
    return Status(
        host=str(answer.get("host")),
        processes=msgspec.convert(answer.get("processes", []), list[ProcessState]),
        offset_ms=float(answer.get("now_ms", 0.0)) - (before + after) / 2 * 1e3,
    )


def place(door: Door, asked: Asked) -> tuple[str, list[Receipt]]:
    """The order's name, and the receipts as they stand.  Raises as :func:`ask`."""
    answer = ask(door, {"fn": "hanglab.profile", "asked": msgspec.to_builtins(asked)}, 30.0)
    return str(answer["order"]), _receipts(answer)


def receipts(door: Door, order: str) -> list[Receipt]:
    """Raises as :func:`ask`."""
    return _receipts(ask(door, {"fn": "hanglab.receipts", "order": order}))


def cancel(door: Door, order: str) -> int:
    """Take back what no process has got yet; the number of those.  Raises as :func:`ask`."""
    return int(ask(door, {"fn": "hanglab.cancel", "order": order}).get("cancelled", 0))


def fetch(door: Door, order: str, file: str, target: Path) -> None:
    """Bring a finished trace over.  Raises as :func:`ask`, OSError, FileExistsError."""
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("xb") as opened:
            end = False
            while not end:
                answer = ask(
                    door,
                    {
                        "fn": "hanglab.fetch",
                        "order": order,
                        "file": file,
                        "offset": opened.tell(),
                    },
                )
                opened.write(base64.b64decode(answer["data"]))
                end = bool(answer["end"])
        # A link fails where the name is taken; a rename would overwrite.
        target.hardlink_to(part)
    finally:
        part.unlink(missing_ok=True)


def request_dynolog(
    door: Door, config: str, job_id: int, pids: list[int], limit: int
) -> dict[str, Any]:
    """Dynolog's own request, to its daemon.  Raises as :func:`ask`."""
    return ask(
        door,
        {
            "fn": "setKinetOnDemandRequest",
            "config": config,
            "job_id": job_id,
            "pids": pids,
            "process_limit": limit,
        },
    )


def _receipts(answer: dict[str, Any]) -> list[Receipt]:
    return msgspec.convert(answer.get("receipts", []), list[Receipt])
