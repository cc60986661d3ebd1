"""One request over all hosts of a job: a common start, receipts from each, no all or nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from hanglab.recorder.errors import HanglabError
from hanglab.recorder.profiling import client
from hanglab.recorder.profiling.client import AgentRefused, AgentUnreachable, Endpoint, HostStatus
from hanglab.recorder.profiling.trace_records import (
    MAX_PATIENCE_S,
    ProcessState,
    ProfileRequest,
    Receipt,
    Selection,
)

#: Seconds between two questions for receipts.
_POLL_S = 0.1
#: What requests on the way to many hosts take, and Kineto's own needs, in milliseconds.
_LEAD_MS = 2_200.0
_WORKERS = 32
#: How often a start is put off because others were quicker.
_MOST_OVERTAKEN = 4
#: Iterations between two possible starts where nobody counts how fast they pass.
ROUNDUP = 50


@dataclass
class HostPart:
    """Result of the request on one host."""

    endpoint: Endpoint
    host: str
    order: str = ""
    receipts: list[Receipt] = field(default_factory=list)
    #: Why there are no receipts.
    problem: str = ""
    #: None of the processes that are meant runs there, and some run elsewhere.
    beside: bool = False
    #: The host refused a start that it could have met when it was asked for its processes.
    overtaken: bool = False

    @property
    def done(self) -> bool:
        return bool(self.problem) or all(receipt.final for receipt in self.receipts)


class TooEarly(HanglabError):
    """The start that was asked for cannot be met; its text says the earliest that can."""

    advice = "Ask for a later start."


@dataclass
class RequestPlan:
    """A request, and the hosts that are to be asked."""

    endpoints: Sequence[Endpoint]
    asked: ProfileRequest
    #: Seconds from ``begun`` to the common start; None for the earliest that all can meet.
    start_in_s: float | None = None
    #: Wall time in seconds.
    begun: float = field(default_factory=time.time)
    #: What hosts are asked, from before they are: whoever is interrupted withdraws it.
    parts: list[HostPart] = field(default_factory=list)


_T = TypeVar("_T")


def place(plan: RequestPlan) -> list[HostPart]:
    """Ask all hosts at once.  Raises TooEarly; whatever one host does wrong stays its own."""
    began = time.monotonic()
    parts = _ask(plan)
    for _ in range(_MOST_OVERTAKEN):
        if plan.start_in_s is not None or not any(part.overtaken for part in parts):
            break
        # Somebody else asked while this looked at the processes, or a busy host was told late.
        # Whoever has its request already traces once more, so that all have a common start.
        withdraw(parts)
        took_ms = (time.monotonic() - began) * 1e3
        began = time.monotonic()
        parts = _ask(plan, took_ms)
    return parts


def _ask(plan: RequestPlan, spare_ms: float = 0.0) -> list[HostPart]:
    """One try, whose common start is ``spare_ms`` later than hosts at rest need."""
    thorough = plan.asked.window.iterations > 0

    def look(endpoint: Endpoint) -> HostStatus:
        return client.status(endpoint, "thoroughly" if thorough else "briefly")

    parts: list[HostPart] = []
    statuses: dict[Endpoint, HostStatus] = {}
    for endpoint, found in zip(plan.endpoints, everywhere(plan.endpoints, look), strict=True):
        part = HostPart(endpoint, endpoint.host)
        if isinstance(found, HostStatus):
            statuses[endpoint] = found
            part.host = found.host
        else:
            part.problem = str(found)
        parts.append(part)
    able = [part for part in parts if not part.problem]
    meant = {
        part.endpoint: chosen(statuses[part.endpoint].processes, plan.asked.selection)
        for part in able
    }
    everyone = [process for processes in meant.values() for process in processes]
    start_ms = _common_start(plan, everyone, spare_ms)
    asked = plan.asked
    window = asked.window
    if window.iterations and window.roundup == 1 and len(everyone) > 1:
        # It also holds where the iteration that was asked for has passed in some by then.
        window = msgspec.structs.replace(window, roundup=_roundup(everyone))
    if window.at_iteration:
        wait_s = _until_iteration(window.at_iteration, everyone)
        patience_s = min(asked.patience_s + wait_s, MAX_PATIENCE_S)
        asked = msgspec.structs.replace(asked, patience_s=max(asked.patience_s, patience_s))

    def send(part: HostPart) -> None:
        own = window
        if start_ms:
            # In that host's own time.
            own = msgspec.structs.replace(
                own, start_ms=int(start_ms + statuses[part.endpoint].offset_ms)
            )
        placed = client.place(part.endpoint, msgspec.structs.replace(asked, window=own))
        part.order, part.receipts = placed

    # Hosts that have none of the processes say so themselves, unless others have them.
    wanted = [part for part in able if meant[part.endpoint]] or able
    for part in able:
        if part not in wanted:
            part.beside = True
            part.problem = "none of the processes that are meant is there"
    plan.parts = parts
    failures = everywhere(wanted, send)
    for part, failure in zip(wanted, failures, strict=True):
        if failure is not None:
            part.problem = str(failure)
            part.overtaken = bool(start_ms) and isinstance(failure, AgentRefused)
    return parts


def follow(parts: Sequence[HostPart], tell: Callable[[Sequence[HostPart]], None]) -> None:
    """Wait until all receipts are final; ``tell`` is called whenever some may have changed."""
    silent: dict[str, float] = {}
    while any(not part.done for part in parts):
        time.sleep(_POLL_S)
        waiting = [part for part in parts if not part.done]
        answers = everywhere(waiting, lambda part: client.receipts(part.endpoint, part.order))
        for part, answer in zip(waiting, answers, strict=True):
            if not isinstance(answer, Exception):
                part.receipts = answer
                silent.pop(part.order, None)
            elif isinstance(answer, AgentRefused) or (
                time.monotonic() - silent.setdefault(part.order, time.monotonic()) > 10.0
            ):
                part.problem = str(answer)
        tell(parts)


def withdraw(parts: Sequence[HostPart]) -> int:
    """Take back what no process has got yet, after Ctrl-C; the number of those."""
    asked = [part for part in parts if part.order and not part.done]
    answers = everywhere(asked, lambda part: client.cancel(part.endpoint, part.order))
    return sum(answer for answer in answers if isinstance(answer, int))


def bring(parts: Sequence[HostPart], out: Path) -> dict[str, str]:
    """Bring all finished traces into a folder; file name to the reason where one would not come.

    Nothing that is there already is overwritten.
    """
    problems = {}
    for part in parts:
        for receipt in part.receipts:
            if not receipt.file:
                continue
            # In a Case the order stands before the name; here the folder is the order's.
            name = receipt.file.removeprefix(f"{part.order}.")
            target = out / name
            if name in ("", ".", "..") or "/" in name:
                problems[receipt.file] = "that is no name of a trace"
                continue
            try:
                client.fetch(part.endpoint, part.order, receipt.file, target)
            except FileExistsError:
                problems[receipt.file] = f"{target} is there already"
            except OSError as error:
                problems[receipt.file] = f"{target}: {error.strerror}"
            except (AgentUnreachable, AgentRefused) as error:
                problems[receipt.file] = str(error)
    return problems


def chosen(processes: Sequence[ProcessState], selection: Selection) -> list[ProcessState]:
    """Processes of a host that are meant, as far as can be told from here."""
    found = [p for p in processes if p.is_rank] or list(processes)
    if selection.pids:
        # The host knows ancestors and namespaces; here only plain matches show.
        found = [p for p in processes if p.pid in selection.pids] or found
    if selection.job:
        found = [p for p in found if selection.job in p.jobs]
    if selection.ranks:
        found = [p for p in found if p.rank in selection.ranks]
    return found


def _common_start(plan: RequestPlan, everyone: Sequence[ProcessState], spare_ms: float) -> float:
    """Wall time here in milliseconds; 0 for as soon as possible.  Raises TooEarly."""
    window = plan.asked.window
    if window.iterations or not everyone:
        return 0.0
    hears_s = max(p.free_in_s + p.period_s for p in everyone)
    lead_ms = hears_s * 1e3 + _LEAD_MS + window.warmup_s * 1e3
    if plan.start_in_s is None:
        return time.time() * 1e3 + lead_ms + spare_ms if len(everyone) > 1 else 0.0
    # Looking at the processes has taken a moment, and would again.
    lead_ms += (time.time() - plan.begun) * 1e3
    if plan.start_in_s * 1e3 < lead_ms:
        raise TooEarly(
            f"the processes look for requests every {max(p.period_s for p in everyone):.1f} s; "
            f"the earliest common start is in {lead_ms / 1e3:.1f} s"
        )
    return (plan.begun + plan.start_in_s) * 1e3


def _until_iteration(wanted: int, everyone: Sequence[ProcessState]) -> float:
    """Seconds until all are at that iteration, as far as anybody counts.  Raises TooEarly."""
    waits = [0.0]
    for process in everyone:
        if process.iterations is None or not process.iterations_per_s:
            continue
        rate = process.iterations_per_s
        earliest = process.iterations + math.ceil(rate * (process.period_s + 1.0)) + 1
        if wanted < earliest:
            raise TooEarly(
                f"rank {process.rank} is at iteration {process.iterations} and makes {rate:.3g} a "
                f"second; the earliest common start is at iteration {earliest}"
            )
        waits.append((wanted - process.iterations) / rate)
    return max(waits)


def _roundup(everyone: Sequence[ProcessState]) -> int:
    """Iterations between possible starts: more than pass while all processes get the request."""
    rates = [p.iterations_per_s for p in everyone if p.iterations_per_s]
    if not rates:
        return ROUNDUP
    return max(2, int(max(rates) * (max(p.period_s for p in everyone) + 1.0)) + 1)


_K = TypeVar("_K")


def everywhere(
    places: Sequence[_K], act: Callable[[_K], _T]
) -> list[_T | AgentUnreachable | AgentRefused]:
    """Results of ``act`` for each, all at once; a failure stays with the one that it is of."""

    def attempt(place: _K) -> _T | AgentUnreachable | AgentRefused:
        try:
            return act(place)
        except (AgentUnreachable, AgentRefused) as error:
            return error

    if not places:
        return []
    with ThreadPoolExecutor(min(_WORKERS, len(places)), "hanglab-hosts") as pool:
        return list(pool.map(attempt, places))
