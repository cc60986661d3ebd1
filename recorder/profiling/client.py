"""The asking side: an agent of hanglab's, or a dynolog daemon, on one host."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from hanglab.recorder.errors import HanglabError
from hanglab.recorder.profiling import wire
from hanglab.recorder.profiling.clock_offset import ClockAnswer, offset_ms
from hanglab.recorder.profiling.trace_records import ProcessState, ProfileRequest, Receipt

#: Seconds for an agent to look at all its processes.
_LOOK_S = 60.0
#: Answers that bound by how much a host's clock differs.
_ANSWERS = 3


class AgentUnreachable(HanglabError):
    """Nobody answers there; its text says why."""

    advice = "See whether the agent runs there, and whether host and port are right."


class AgentRefused(HanglabError):
    """The agent answered that it will not; its text says why."""

    advice = "Change what is asked for as the answer says."


@dataclass(frozen=True)
class HostStatus:
    """One host's registered processes."""

    host: str
    processes: list[ProcessState]
    #: The host's wall clock minus ours, in milliseconds.
    offset_ms: float


class DynologAnswer(msgspec.Struct, rename="camel"):
    """Processes that a dynolog daemon told, by their ids in their own namespace."""

    processes_matched: list[int]
    activity_profilers_triggered: list[int]
    activity_profilers_busy: int = 0


class _StatusAnswer(msgspec.Struct):
    host: str
    now_ms: float
    processes: list[ProcessState]


class _OrderAnswer(msgspec.Struct):
    order: str
    receipts: list[Receipt]
    cancelled: int = 0


@dataclass(frozen=True)
class Endpoint:
    """Address at which an agent listens, and the credentials that it wants to see."""

    host: str
    port: int
    token: str | None = None
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def ask(endpoint: Endpoint, message: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """One request and its answer.  Raises AgentUnreachable and AgentRefused."""
    if endpoint.token is not None:
        message = {**message, "token": endpoint.token}
    try:
        with contextlib.ExitStack() as stack:
            # All of a name's addresses are tried, in order.
            connection = stack.enter_context(
                socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
            )
            if endpoint.tls is not None:
                connection = stack.enter_context(
                    endpoint.tls.wrap_socket(connection, server_hostname=endpoint.host)
                )
            answer = wire.exchange(connection, message, timeout_s)
    except ssl.SSLError as error:
        raise AgentUnreachable(f"{endpoint}: TLS failed: {error.reason or error}") from None
    except OSError as error:
        raise AgentUnreachable(f"{endpoint}: {error.strerror or error}") from None
    except wire.BadMessage as error:
        raise AgentUnreachable(f"{endpoint}: its answer cannot be read: {error}") from None
    if "error" in answer:
        raise AgentRefused(str(answer["error"]))
    return answer


def is_dynolog(endpoint: Endpoint) -> bool:
    """True if a dynolog daemon answers there: it knows none of hanglab's requests.

    Raises AgentUnreachable.
    """
    with contextlib.suppress(AgentRefused, AgentUnreachable):
        ask(endpoint, {"fn": "hanglab.status"})
        return False
    return isinstance(ask(endpoint, {"fn": "getStatus"}).get("status"), int)


def status(endpoint: Endpoint, look: Literal["", "briefly", "thoroughly"] = "") -> HostStatus:
    """Processes that are registered.  Raises AgentUnreachable and AgentRefused.

    ``look``: have the agent see first which of them stand still, and compare clocks well enough
    for a common start; it takes a second or more.
    """
    if look:
        ask(endpoint, {"fn": "hanglab.status", "look": look}, _LOOK_S)
    heard = []
    for _ in range(_ANSWERS if look else 1):
        before_ms = time.time() * 1e3
        answer = _read(endpoint, ask(endpoint, {"fn": "hanglab.status"}), _StatusAnswer)
        heard.append(ClockAnswer(before_ms, time.time() * 1e3, answer.now_ms))
    return HostStatus(answer.host, answer.processes, offset_ms(heard))


def place(endpoint: Endpoint, asked: ProfileRequest) -> tuple[str, list[Receipt]]:
    """The order's name, and the receipts as they stand.  Raises as :func:`ask`."""
    answer = ask(endpoint, {"fn": "hanglab.profile", "asked": msgspec.to_builtins(asked)}, 30.0)
    placed = _read(endpoint, answer, _OrderAnswer)
    return placed.order, placed.receipts


def receipts(endpoint: Endpoint, order: str) -> list[Receipt]:
    """Raises as :func:`ask`."""
    answer = ask(endpoint, {"fn": "hanglab.receipts", "order": order})
    return _read(endpoint, answer, _OrderAnswer).receipts


def cancel(endpoint: Endpoint, order: str) -> int:
    """Take back what no process has got yet; the number of those.  Raises as :func:`ask`."""
    answer = ask(endpoint, {"fn": "hanglab.cancel", "order": order})
    return _read(endpoint, answer, _OrderAnswer).cancelled


def fetch(endpoint: Endpoint, order: str, file: str, target: Path) -> None:
    """Bring a finished trace over.  Raises as :func:`ask`, OSError, FileExistsError.

    Overwrites nothing, and leaves nothing that is not whole.
    """
    opened = target.open("xb")
    try:
        with opened:
            end = False
            while not end:
                answer = ask(
                    endpoint,
                    {
                        "fn": "hanglab.fetch",
                        "order": order,
                        "file": file,
                        "offset": opened.tell(),
                    },
                )
                try:
                    opened.write(base64.b64decode(answer["data"], validate=True))
                    end = bool(answer["end"])
                except (KeyError, TypeError, ValueError):
                    raise AgentUnreachable(f"{endpoint}: its answer holds no trace") from None
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def request_dynolog(
    endpoint: Endpoint, config: str, job_id: int, pids: list[int], limit: int
) -> DynologAnswer:
    """Dynolog's own request, to its daemon.  Raises as :func:`ask`."""
    answer = ask(
        endpoint,
        {
            "fn": "setKinetOnDemandRequest",
            "config": config,
            "job_id": job_id,
            "pids": pids,
            "process_limit": limit,
        },
    )
    if answer.get("status") is not None:
        raise AgentRefused(f"{endpoint}: dynolog says: {answer['status']}")
    return _read(endpoint, answer, DynologAnswer)


_A = TypeVar("_A")


def _read(endpoint: Endpoint, answer: dict[str, Any], kind: type[_A]) -> _A:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise AgentUnreachable(f"{endpoint}: its answer cannot be read: {error}") from None
