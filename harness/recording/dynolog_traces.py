"""Traces through dynolog daemons: they give no receipts, so files are waited for and read here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hanglab.harness.errors import HanglabError, UsageError
from hanglab.recorder.profiling import client, multi_host_request
from hanglab.recorder.profiling.client import (
    AgentRefused,
    AgentUnreachable,
    DynologAnswer,
    Endpoint,
)
from hanglab.recorder.profiling.configuration import BadConfiguration, configuration, trace_path
from hanglab.recorder.profiling.hosts import NoHosts, slurm_number
from hanglab.recorder.profiling.multi_host_request import HostPart
from hanglab.recorder.profiling.registry import DEFAULT_PERIOD_S
from hanglab.recorder.profiling.trace_check import TraceCheck
from hanglab.recorder.profiling.trace_records import ProfileRequest, Receipt
from hanglab.recorder.profiling.traces import Check

#: What Kineto needs between a request and its start, and requests on the way, in seconds.
_LEAD_S = 2.2
_POLL_S = 0.1
#: More processes than a host has; dynolog wants a limit.
_MOST = 1000


def fitting(asked: ProfileRequest, start_in_s: float | None) -> tuple[ProfileRequest, float | None]:
    """The request and its start as processes behind dynolog can meet it, who tell of nothing.

    Raises UsageError for what dynolog has no words for, and TooEarly.
    """
    if asked.selection.ranks:
        raise UsageError(
            "A dynolog daemon knows no ranks.", "Name processes with --pid, or the job with --job."
        )
    window = asked.window
    if window.iterations:
        if window.roundup == 1:
            window = msgspec.structs.replace(window, roundup=multi_host_request.ROUNDUP)
        return msgspec.structs.replace(asked, window=window), None
    lead_s = DEFAULT_PERIOD_S + _LEAD_S + window.warmup_s
    if start_in_s is not None and start_in_s < lead_s:
        raise multi_host_request.TooEarly(
            "processes behind a dynolog daemon look for requests every "
            f"{DEFAULT_PERIOD_S:g} s, as far as is known; the earliest common start is in "
            f"{lead_s:.1f} s"
        )
    # Beside it agents of hanglab's may look at their processes first.
    return asked, start_in_s if start_in_s is not None else lead_s + 2.0


def place(
    endpoints: Sequence[Endpoint], asked: ProfileRequest, start_ms: float, out: Path
) -> list[HostPart]:
    """Ask all daemons at once, for files in ``out``; ``start_ms`` is wall time, 0 by iterations.

    Raises HanglabError where nothing can be asked at all.
    """
    file = out.absolute() / f"trace-{time.strftime('%Y%m%d-%H%M%S')}.pt.trace.json"
    window = msgspec.structs.replace(asked.window, start_ms=int(start_ms))
    try:
        number = slurm_number(asked.selection.job) if asked.selection.job else 0
        # Kineto makes no folders.
        out.mkdir(parents=True, exist_ok=True)
        text = configuration(str(file), "hanglab", window, asked.detail)
    except NoHosts as error:
        raise HanglabError(f"{error}.", "dynolog knows jobs by SLURM's number only.") from None
    except OSError as error:
        raise HanglabError(
            f"{out} cannot be made: {error.strerror}.", "Choose another --out."
        ) from None
    except BadConfiguration as error:
        raise UsageError(f"This cannot be asked for: {error}.") from None

    def ask(endpoint: Endpoint) -> DynologAnswer:
        return client.request_dynolog(endpoint, text, number, asked.selection.pids, _MOST)

    parts = []
    for endpoint, found in zip(
        endpoints, multi_host_request.everywhere(endpoints, ask), strict=True
    ):
        part = HostPart(endpoint, endpoint.host)
        if isinstance(found, AgentRefused | AgentUnreachable):
            part.problem = str(found)
        elif not found.processes_matched:
            part.problem = f"a dynolog daemon knows no process of job {number} that is meant"
        else:
            part.receipts = [
                _receipt(endpoint, pid, file, found) for pid in found.processes_matched
            ]
        parts.append(part)
    return parts


def follow(parts: Sequence[HostPart], asked: ProfileRequest, start_ms: float) -> None:
    """Wait for the files and read them; one that does not come to this host is told as such."""
    window = asked.window
    length_s = 0.0 if window.iterations else window.duration_ms / 1e3
    begin_s = start_ms / 1e3 if start_ms else time.time() + DEFAULT_PERIOD_S
    deadline = begin_s + length_s + asked.patience_s
    end_ms = start_ms + window.duration_ms if start_ms else None
    checks: dict[str, TraceCheck] = {}
    while any(not part.done for part in parts):
        time.sleep(_POLL_S)
        for receipt in (r for part in parts for r in part.receipts if not r.final):
            _look(receipt, checks, start_ms or None, end_ms, time.time() > deadline)


def _receipt(endpoint: Endpoint, pid: int, file: Path, found: DynologAnswer) -> Receipt:
    receipt = Receipt(endpoint.host, pid, None, asked_ms=time.time() * 1e3)
    receipt.path = trace_path(str(file), pid)
    if pid not in found.activity_profilers_triggered:
        receipt.state = "failed"
        receipt.reason = "dynolog did not tell it: it is busy with another request"
    return receipt


def _look(
    receipt: Receipt,
    checks: dict[str, TraceCheck],
    start_ms: float | None,
    end_ms: float | None,
    late: bool,
) -> None:
    path = Path(receipt.path)
    check = checks.get(receipt.path)
    if check is not None:
        checked = check.result()
        if checked is not None:
            receipt.state = "valid" if checked.ok else "failed"
            receipt.reason = checked.reason
            receipt.file = path.name
            receipt.events, receipt.dropped_events = checked.events, checked.dropped
            receipt.first_ms, receipt.last_ms = checked.first_ms, checked.last_ms
            receipt.size = checked.size
    elif path.exists():
        receipt.state = "complete"
        receipt.completed_ms = time.time() * 1e3
        checks[receipt.path] = TraceCheck(
            Check(receipt.path, receipt.path, host=receipt.host, start_ms=start_ms, end_ms=end_ms)
        )
    elif late:
        receipt.state = "failed"
        receipt.reason = (
            f"a dynolog daemon has the request, and tells no more; {path} has not come to this "
            "host, so look for it on that one"
        )
