"""Orders: one request to profile, followed to a receipt for each process.

Kineto acknowledges nothing: it drops a request that comes while another trace
runs, refuses a start time that is too close with a line on the job's stderr, and
lets a user's own profiler cancel it silently.  So whatever can be known before is
checked before, and a trace counts once its file has been read.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hanglab.recorder.profiling import processes
from hanglab.recorder.profiling.access_control import Refused
from hanglab.recorder.profiling.configuration import (
    BadConfiguration,
    TraceWindow,
    configuration,
    trace_path,
)
from hanglab.recorder.profiling.registry import Client, Registry
from hanglab.recorder.profiling.trace_check import TraceCheck
from hanglab.recorder.profiling.trace_delivery import TraceDelivery
from hanglab.recorder.profiling.trace_records import (
    MAX_PATIENCE_S,
    ProfileRequest,
    Receipt,
    Selection,
)
from hanglab.recorder.profiling.traces import Check, Checked
from hanglab.recorder.system import procfs

#: Kineto wants this much between a request and its start, in seconds.
_KINETO_LEAD_S = 1.0
#: What a busy host may add to that.
_MARGIN_S = 0.4
#: A process that says it is idle this long after the end, and has written nothing, never will.
_NO_FILE_S = 3.0
_KEPT_ORDERS = 64
#: Requests that wait for one process.
_MOST_WAITING = 8
_BUSY = ": a trace runs in it all the time, such as one of its own torch.profiler"


@dataclass
class Target:
    """One process of an order."""

    client: Client
    receipt: Receipt
    #: Where the finished trace goes.
    target: Path
    delivery: TraceDelivery
    #: How often it has said that it is idle, without a break, since its trace should have ended.
    idle_seen: int = 0
    checking: TraceCheck | None = None


@dataclass
class TraceRequest:
    name: str
    asked: ProfileRequest
    targets: list[Target]
    placed: float = field(default_factory=time.monotonic)

    @property
    def open(self) -> bool:
        return any(not target.receipt.final for target in self.targets)


#: Why a process is known to stand still; "" where it is not.  Must not block.
Standstill = Callable[[Client], str]
#: The folder in which a process's finished traces belong; None for the order's own.
Home = Callable[[Client], Path | None]


class TraceRequests:
    """All orders of one agent.  Not thread-safe: its caller holds a lock."""

    def __init__(
        self,
        registry: Registry,
        root: Path,
        host: str,
        standstill: Standstill,
        home: Home = lambda client: None,
    ) -> None:
        self._registry = registry
        self._root = root
        self._host = host
        self._standstill = standstill
        self._home = home
        self._orders: dict[str, TraceRequest] = {}

    @property
    def busy(self) -> bool:
        return any(order.open for order in self._orders.values())

    def at_work(self) -> list[Client]:
        """Processes in which something is being done for an open order."""
        return [
            target.client
            for order in self._orders.values()
            for target in order.targets
            if not target.receipt.final and target.delivery.delivered is not None
        ]

    def select(self, selection: Selection) -> dict[str, Client]:
        """The processes that are meant.  Raises Refused where there are none, and says why."""
        everyone = self._registry.clients()
        ranks = self._registry.ranks()
        if selection.pids:
            wanted = set(selection.pids)
            chosen = {
                key: client
                for key, client in everyone.items()
                if wanted & {client.identity.pid, *client.pids, *client.identity.ancestors}
            }
            # A pid of a launcher means the ranks below it.
            chosen = {key: c for key, c in chosen.items() if key in ranks} or chosen
        else:
            chosen = ranks or everyone
        if selection.job:
            chosen = {
                key: client
                for key, client in chosen.items()
                if selection.job in {str(client.job_id), *client.identity.jobs}
            }
        if selection.ranks:
            chosen = {k: c for k, c in chosen.items() if c.identity.rank in selection.ranks}
        if not chosen:
            raise Refused(_nobody(selection, everyone, ranks))
        return chosen

    def earliest_start_ms(self, clients: dict[str, Client], warmup_s: int) -> float:
        """Wall time in milliseconds at which all of them can have begun."""
        hears = max(client.free_in_s + client.period_s for client in clients.values())
        return (time.time() + hears + _KINETO_LEAD_S + _MARGIN_S + warmup_s) * 1e3

    def place(self, asked: ProfileRequest) -> TraceRequest:
        """Take an order: each process it concerns gets its own text.  Raises Refused."""
        window = asked.window
        try:
            window.check()
        except BadConfiguration as error:
            raise Refused(str(error)) from None
        if not 0 < asked.patience_s <= MAX_PATIENCE_S:
            raise Refused(f"at most {MAX_PATIENCE_S:g} s are waited for a trace")
        clients = self.select(asked.selection)
        if window.start_ms and not window.iterations:
            earliest = self.earliest_start_ms(clients, window.warmup_s)
            if window.start_ms < earliest:
                raise Refused(
                    f"the start is too close: these processes can begin in "
                    f"{earliest / 1e3 - time.time():.1f} s at the earliest"
                )
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        order = TraceRequest(name, asked, [])
        for client in clients.values():
            order.targets.append(self._target(order, client))
        self._orders[name] = order
        while len(self._orders) > _KEPT_ORDERS:
            oldest = next(iter(self._orders))
            if self._orders[oldest].open:
                break
            del self._orders[oldest]
        return order

    def find(self, name: object) -> TraceRequest:
        """Raises Refused."""
        order = self._orders.get(name) if isinstance(name, str) else None
        if order is None:
            raise Refused(f"there is no order {name!r} here")
        return order

    def cancel(self, order: TraceRequest) -> int:
        """Take back what no process has been given yet; the number of those."""
        count = 0
        for target in order.targets:
            if target.receipt.state == "queued":
                count += 1
                self._fail(target, "it was cancelled before the process had asked for it")
        return count

    def collect(self, client: Client) -> str:
        """The text that the process gets now; "" for nothing.

        A request that meets another can be dropped, so it waits for its end.
        """
        if not client.waiting or not client.free:
            return ""
        client.given = delivery = client.waiting.popleft()
        client.told = True
        target = self._target_of(delivery)
        if target is not None:
            target.receipt.state = "delivered"
            target.receipt.delivered_ms = time.time() * 1e3
        return delivery.deliver()

    def heard(self, client: Client) -> None:
        """A process has asked; it tells by that whether a trace runs in it."""
        if client.given is not None and not client.idle:
            client.given.begun = True
        for order in self._orders.values():
            for target in order.targets:
                if target.client is not client or target.receipt.final:
                    continue
                if not client.idle and target.receipt.state == "delivered":
                    target.receipt.state = "active"
                due = target.delivery.due
                if not client.idle:
                    target.idle_seen = 0
                elif due is not None and time.monotonic() > due:
                    target.idle_seen += 1

    def follow(self) -> None:
        """Look after all open orders once: files, ends of processes, deadlines."""
        for order in self._orders.values():
            if order.open:
                for target in order.targets:
                    if not target.receipt.final:
                        self._follow(order, target)

    def _target(self, order: TraceRequest, client: Client) -> Target:
        identity = client.identity
        who = f"rank{identity.rank}" if identity.rank is not None else "process"
        pid = identity.pid if identity.pid is not None else client.own_pid
        # In containers every first process calls itself 1, and Kineto adds that alone.
        stem = f"{who}.{self._host}.{pid}"
        receipt = Receipt(
            self._host,
            pid,
            identity.rank,
            asked_ms=time.time() * 1e3,
        )
        folder = self._root / order.name
        asked = folder / f"{stem}.pt.trace.json"
        home = self._home(client) or folder
        detail = order.asked.detail
        if self._standstill(client):
            # Of a process that hangs the stack is what matters.
            detail = msgspec.structs.replace(detail, stacks=True)
        text = configuration(str(asked), order.name, order.asked.window, detail)
        target = Target(
            client,
            receipt,
            home / (f"{order.name}.{stem}" if home != folder else stem),
            TraceDelivery(
                order.name,
                text,
                time.monotonic(),
                Path(trace_path(str(asked), client.own_pid)),
            ),
        )
        target.target = target.target.with_name(target.target.name + ".pt.trace.json")
        reason = self._obstacle(client, order.asked.window)
        if not reason:
            reason = _prepare(folder, home, identity.pid)
        if reason:
            self._fail(target, reason)
        else:
            client.waiting.append(target.delivery)
        return target

    def _obstacle(self, client: Client, window: TraceWindow) -> str:
        if len(client.waiting) >= _MOST_WAITING:
            return f"{len(client.waiting)} requests already wait for the process to ask for them"
        if client.given is not None and client.given.awaits_iteration:
            return _blocked(client.given)
        if window.iterations:
            still = self._standstill(client)
            if still:
                return (
                    f"it makes no iterations ({still}), so the request would never begin and "
                    "would block every later one; ask by --duration-ms"
                )
        return ""

    def _follow(self, order: TraceRequest, target: Target) -> None:
        receipt = target.receipt
        if target.checking is not None:
            checked = target.checking.result()
            if checked is not None:
                self._take(target, checked)
            return
        if target.delivery.written.exists():
            target.delivery.settled = True
            receipt.state = "complete"
            receipt.completed_ms = time.time() * 1e3
            target.checking = TraceCheck(self._check(order, target))
            return
        if not processes.alive(target.client.identity):
            self._fail(target, "the process ended before its trace was written")
            return
        now = time.monotonic()
        patience = order.asked.patience_s
        if target.delivery.delivered is None:
            self._follow_waiting(order, target, now)
        elif target.delivery.due is not None:
            due = target.delivery.due
            dropped = target.idle_seen >= 2 and now > due + _NO_FILE_S
            if dropped or now > due + patience:
                self._fail(target, _dropped(target, patience))
        elif now - target.delivery.delivered > patience:
            self._fail(target, _no_iteration(target, order.asked.window, patience))

    def _follow_waiting(self, order: TraceRequest, target: Target, now: float) -> None:
        """Look after one that the process has not been given."""
        client = target.client
        given = client.given
        first = client.waiting[0]
        busy = "" if client.idle else _BUSY
        start_ms = order.asked.window.start_ms
        if first is not target.delivery:
            busy = f": request {first.order} is before it"
        elif not client.free and given is not None:
            busy = f": request {given.order} is at work in it"
        if start_ms and time.time() * 1e3 > start_ms - _KINETO_LEAD_S * 1e3:
            self._fail(target, f"it did not ask for work before the start time{busy}")
        elif given is not None and given.awaits_iteration and self._given_up(given):
            self._fail(target, _blocked(given))
        elif first is not target.delivery or client.given is not None:
            # What is before it has a patience of its own.
            target.delivery.queued = now
        elif now - target.delivery.queued > max(order.asked.patience_s, 3 * client.period_s):
            silent = now - client.last_seen
            self._fail(target, f"it has not asked for work for {silent:.0f} s{busy}")

    def _given_up(self, delivery: TraceDelivery) -> bool:
        target = self._target_of(delivery)
        return target is not None and target.receipt.final

    def _check(self, order: TraceRequest, target: Target) -> Check:
        identity = target.client.identity
        window = order.asked.window
        start = end = None
        if not window.iterations:
            start = float(window.start_ms) or target.receipt.delivered_ms
            if start is not None:
                # Without a set start Kineto begins when it likes, soon after it has got the text.
                slack = 0.0 if window.start_ms else (window.warmup_s + 5.0) * 1e3
                end = start + window.duration_ms + slack
        return Check(
            path=str(target.delivery.written),
            target=str(target.target),
            rank=identity.rank,
            world_size=identity.world_size,
            host=self._host,
            start_ms=start,
            end_ms=end,
        )

    def _take(self, target: Target, checked: Checked) -> None:
        receipt = target.receipt
        receipt.events = checked.events
        receipt.dropped_events = checked.dropped
        receipt.first_ms, receipt.last_ms = checked.first_ms, checked.last_ms
        receipt.size = checked.size
        if target.target.exists():
            receipt.file = target.target.name
            receipt.path = str(target.target)
        receipt.state = "valid" if checked.ok else "failed"
        receipt.reason = (
            "" if checked.ok else f"its trace is not what was asked for: {checked.reason}"
        )

    def _fail(self, target: Target, reason: str) -> None:
        target.receipt.state = "failed"
        target.receipt.reason = reason
        # Kineto knows no cancel: what waits in it for an iteration goes on waiting.
        target.delivery.settled = not target.delivery.awaits_iteration
        if target.delivery in target.client.waiting:
            target.client.waiting.remove(target.delivery)

    def _target_of(self, waiting: TraceDelivery) -> Target | None:
        order = self._orders.get(waiting.order)
        if order is None:
            return None
        return next((t for t in order.targets if t.delivery is waiting), None)


def _prepare(folder: Path, home: Path, pid: int | None) -> str:
    """Make the folders, for the process to write into; "" or why that cannot be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if pid is not None and os.geteuid() == 0:
            owner = procfs.owner(pid)
            if owner is None:
                return "its trace could not be written: the process has ended"
            if owner[0] != folder.stat().st_uid:
                os.chown(folder, *owner)
    except OSError as error:
        return f"its trace could not be written: {error.filename}: {error.strerror}"
    return ""


def _no_iteration(target: Target, window: TraceWindow, patience_s: float) -> str:
    if target.delivery.begun:
        return (
            f"no file came within {patience_s:.0f} s of the request, and a trace has run in it: "
            "its iterations take longer, which a longer --timeout helps, or another profiler, "
            "such as the job's own torch.profiler, cancelled it"
        )
    which = "no iteration"
    if window.at_iteration:
        which = f"neither iteration {window.at_iteration} nor the next multiple of {window.roundup}"
    elif window.roundup > 1:
        which = f"no iteration that is a multiple of {window.roundup}"
    return (
        f"{which} began within {patience_s:.0f} s; does the job still step, with an optimizer of "
        "torch's? Then a longer --timeout helps"
    )


def _blocked(delivery: TraceDelivery) -> str:
    return (
        f"request {delivery.order or 'of a dynolog client'} waits in it for an iteration that has "
        "not come; it blocks every later one"
    )


def _dropped(target: Target, patience_s: float) -> str:
    if not target.client.idle:
        return (
            f"no file came within {patience_s:.0f} s of its end{_BUSY}; or a longer --timeout helps"
        )
    # Kineto writes to a .tmp beside the file and renames it.
    written = target.delivery.written
    remains = list(written.parent.glob(f"{written.name}*.tmp*"))
    for path in remains:
        with contextlib.suppress(OSError):
            path.unlink()
    if target.receipt.state == "active" and not remains:
        return "the trace began, and no file came"
    if remains:
        return "it was cancelled: another profiler, such as the job's own torch.profiler, ran"
    return (
        "it took the request and traced nothing: its own torch.profiler may have been at work, "
        "or Kineto refused it (its reason stands on the job's stderr)"
    )


def _nobody(selection: Selection, everyone: dict[str, Client], ranks: dict[str, Client]) -> str:
    if not everyone:
        return (
            "no process has registered with this agent; a job must be started with "
            "KINETO_USE_DAEMON=1 in its environment, or under `hanglab record`, and import torch "
            "2.7 or newer"
        )
    there = sorted(c.identity.rank for c in ranks.values() if c.identity.rank is not None)
    jobs = sorted({job for c in everyone.values() for job in {*c.identity.jobs, str(c.job_id)}})
    asked = []
    if selection.ranks:
        asked.append("ranks " + ",".join(map(str, selection.ranks)))
    if selection.pids:
        asked.append("process " + ",".join(map(str, selection.pids)))
    if selection.job:
        asked.append(f"job {selection.job}")
    return (
        f"none of the registered processes is {' and '.join(asked)}; "
        f"registered are {len(everyone)} processes, ranks {there or 'none'}, jobs {jobs}"
    )
