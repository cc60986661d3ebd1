"""Answers over TCP to Dynolog's own requests and to hanglab's."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from hanglab.recorder.profiling import dynolog
from hanglab.recorder.profiling.access_control import Refused, check_token, confined
from hanglab.recorder.profiling.configuration import trace_path
from hanglab.recorder.profiling.iteration_pace import IterationPace
from hanglab.recorder.profiling.registry import Client, Registry
from hanglab.recorder.profiling.trace_delivery import TraceDelivery
from hanglab.recorder.profiling.trace_records import ProcessState, ProfileRequest
from hanglab.recorder.profiling.trace_requests import TraceRequest, TraceRequests

#: Bytes of a trace in one answer.
_BLOCK = 4 * 1024 * 1024
#: Longest wait for a request by iterations to begin before the next is taken, in seconds.
_SETTLES_S = 3.0
#: Processes that are looked at at a time.
_LOOKS = 4


@dataclass
class Requests:
    """Answers requests.  The lock guards registry and orders against the fabric's thread."""

    registry: Registry
    orders: TraceRequests
    lock: RLock
    host: str
    root: Path
    pace: IterationPace
    token: str | None = None

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; what is wrong with a request is told in ``error``."""
        name = message.get("fn")
        known: dict[object, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "getStatus": lambda message: {"status": 1},
            "getVersion": lambda message: {"version": _version()},
            dynolog.NAME: self._dynolog,
            "hanglab.status": self._status,
            "hanglab.profile": self._profile,
            "hanglab.receipts": self._receipts,
            "hanglab.cancel": self._cancel,
            "hanglab.fetch": self._fetch,
        }
        function = known.get(name) if isinstance(name, str) else None
        try:
            check_token(self.token, message.get("token"))
            if function is None:
                raise Refused(f"there is no request {name!r}; see `hanglab agent --help`")
            return function(message)
        except Refused as error:
            if name == dynolog.NAME:
                return dynolog.answer([], [], 0, error=str(error))
            return {"error": str(error)}
        except msgspec.ValidationError as error:
            return {"error": f"the request cannot be read: {error}"}

    def _status(self, message: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            clients = self.registry.clients()
            ranks = set(self.registry.ranks())
        if message.get("look") in ("briefly", "thoroughly"):
            # Whoever is about to name a start time must not wait for this afterwards.
            self._look(
                (client for key, client in clients.items() if key in ranks),
                message.get("look") == "thoroughly",
            )
        states = [self._state(client, key in ranks) for key, client in clients.items()]
        return {
            "host": self.host,
            "now_ms": time.time() * 1e3,
            "processes": msgspec.to_builtins(states),
        }

    def _state(self, client: Client, is_rank: bool) -> ProcessState:
        identity = client.identity
        pace = self.pace.pace(client)
        return ProcessState(
            pid=identity.pid if identity.pid is not None else client.own_pid,
            rank=identity.rank,
            world_size=identity.world_size,
            jobs=sorted({*identity.jobs, str(client.job_id)}),
            command=identity.command,
            is_rank=is_rank,
            idle=client.idle,
            period_s=client.period_s,
            free_in_s=client.free_in_s,
            iterations_per_s=pace.per_s,
            iterations=pace.iterations,
        )

    def _profile(self, message: dict[str, Any]) -> dict[str, Any]:
        asked = msgspec.convert(message.get("asked"), ProfileRequest)
        return self._told(self.place(asked))

    def place(self, asked: ProfileRequest) -> TraceRequest:
        """Take an order.  Raises Refused.

        Whether a process stands still decides whether iterations may be asked of
        it, and whether stacks belong to its trace.  Looking takes up to a second
        and holds up neither the fabric nor other requests.
        """
        with self.lock:
            chosen = self.orders.select(asked.selection)
        stills = self._look(chosen.values(), asked.window.iterations > 0)
        self._settle(chosen.values())
        with self.lock:
            order = self.orders.place(asked)
        for client, still in zip(chosen.values(), stills, strict=True):
            if still:
                self.pace.keep_stack(client, order.name)
        return order

    def _settle(self, clients: Iterable[Client]) -> None:
        """Wait until a request by iterations that has just been handed over must have begun.

        Until that is seen any other is refused, and it is seen when the process asks again.
        """
        until = time.monotonic() + _SETTLES_S
        for client in clients:
            while time.monotonic() < until:
                with self.lock:
                    given = client.given
                    fresh = (
                        given is not None
                        and given.awaits_iteration
                        and time.monotonic() - (given.delivered or 0.0) < 1.5 * client.period_s
                    )
                if not fresh:
                    break
                time.sleep(0.02)

    def _look(self, clients: Iterable[Client], thorough: bool) -> list[str]:
        with ThreadPoolExecutor(_LOOKS, "hanglab-standstill") as pool:
            return list(pool.map(lambda one: self.pace.look(one, thorough), clients))

    def _receipts(self, message: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            return self._told(self.orders.find(message.get("order")))

    def _cancel(self, message: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            order = self.orders.find(message.get("order"))
            return {**self._told(order), "cancelled": self.orders.cancel(order)}

    def _told(self, order: TraceRequest) -> dict[str, Any]:
        with self.lock:
            receipts = [target.receipt for target in order.targets]
        return {
            "order": order.name,
            "host": self.host,
            "open": order.open,
            "receipts": msgspec.to_builtins(receipts),
        }

    def _fetch(self, message: dict[str, Any]) -> dict[str, Any]:
        """A block of a finished trace: only what an order's receipts name."""
        offset = message.get("offset", 0)
        if not isinstance(offset, int) or not 0 <= offset < 1 << 40:
            raise Refused("the offset must be a number from 0 on")
        with self.lock:
            order = self.orders.find(message.get("order"))
            paths = {t.receipt.file: t.target for t in order.targets if t.receipt.file}
        file = message.get("file")
        path = paths.get(file) if isinstance(file, str) else None
        if path is None:
            raise Refused(f"order {order.name} has no trace {file!r}")
        try:
            with path.open("rb") as opened:
                opened.seek(offset)
                data = opened.read(_BLOCK)
        except OSError as error:
            raise Refused(f"the trace cannot be read: {error.strerror}") from None
        return {"data": base64.b64encode(data).decode(), "end": len(data) < _BLOCK}

    def _dynolog(self, message: dict[str, Any]) -> dict[str, Any]:
        request = dynolog.DynologRequest(message)
        file = confined(request.file, self.root)
        with self.lock:
            chosen = {k: c for k, c in self.registry.clients().items() if request.means(c)}
            # A launcher would use up the limit, and has nothing to trace.
            ranks = self.registry.ranks()
            chosen = {key: c for key, c in chosen.items() if key in ranks} or chosen
            if chosen:
                dynolog.check_start(
                    request, self.orders.earliest_start_ms(chosen, request.warmup_s)
                )
        # Of a process that stands still a request by iterations would block all later ones.
        stills = dict.fromkeys(chosen, "")
        if request.by_iterations:
            stills = dict(zip(chosen, self._look(chosen.values(), True), strict=True))
        names = [client.own_pid for client in chosen.values()]
        triggered: list[int] = []
        busy = 0
        refused: dict[str, str] = {}
        with self.lock:
            for key, client in chosen.items():
                if stills[key]:
                    refused[str(client.own_pid)] = f"it makes no iterations: {stills[key]}"
                    busy += 1
                elif client.waiting or not client.free:
                    busy += 1
                elif len(triggered) < request.limit:
                    triggered.append(client.own_pid)
                    alone = names.count(client.own_pid) == 1
                    own = file if alone else dynolog.told_apart(file, client)
                    written = Path(trace_path(own, client.own_pid))
                    told = TraceDelivery("", request.text(own), time.monotonic(), written)
                    client.waiting.append(told)
        more = {"refused": refused} if refused else {}
        return dynolog.answer(names, triggered, busy, **more)


def _version() -> str:
    # Takes longer to import than all of this package, and is hardly ever asked for.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hanglab")
    except PackageNotFoundError:
        return "0"
