"""Receipts of a request to profile, as people see them: while it runs, and at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hanglab.harness.report.panel import make_console
from hanglab.recorder.profiling import multi_host_request
from hanglab.recorder.profiling.multi_host_request import HostPart, RequestPlan
from hanglab.recorder.profiling.trace_records import ProcessState, Receipt
from hanglab.recorder.profiling.traces import TOLERANCE_MS

_STYLES = {"valid": "green", "failed": "red"}


def wait(parts: Sequence[HostPart], quietly: bool) -> None:
    """Follow a request to its end."""
    console = make_console(errors=True)
    if quietly or not console.is_terminal:
        multi_host_request.follow(parts, lambda parts: None)
        return
    with Live(receipts_table(parts), console=console, transient=True) as live:
        multi_host_request.follow(parts, lambda parts: live.update(receipts_table(parts)))


@contextmanager
def withdrawn_when_interrupted(plan: RequestPlan) -> Iterator[None]:
    """Ctrl-C withdraws what no process has got yet, at whatever moment it comes."""
    try:
        yield
    except KeyboardInterrupt:
        count = multi_host_request.withdraw(plan.parts)
        if any(part.order for part in plan.parts):
            words = f"{count} requests that no process had got yet are withdrawn"
            typer.echo(f"hanglab: {words}", err=True)
        raise


def receipts_table(parts: Sequence[HostPart]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("host", "rank", "pid", "state", "events", "seconds", "trace, or what is wrong"):
        table.add_column(name, overflow="fold")
    for part in parts:
        if part.problem:
            table.add_row(part.host, "", "", Text("failed", "red"), "", "", Text(part.problem))
        for receipt in _by_rank(part):
            seconds = ""
            if receipt.completed_ms is not None:
                seconds = f"{(receipt.completed_ms - receipt.asked_ms) / 1e3:.2f}"
            note = receipt.reason or receipt.file
            if receipt.dropped_events:
                note += f" ({receipt.dropped_events} damaged events left out)"
            table.add_row(
                receipt.host,
                "-" if receipt.rank is None else str(receipt.rank),
                str(receipt.pid),
                Text(receipt.state, _STYLES.get(receipt.state, "yellow")),
                str(receipt.events or ""),
                seconds,
                Text(note),
            )
    return table


def _by_rank(part: HostPart) -> list[Receipt]:
    return sorted(part.receipts, key=lambda r: (r.rank is None, r.rank or 0))


def print_receipts(
    parts: Sequence[HostPart],
    problems: dict[str, str],
    out: Path,
    as_json: bool,
    by_iterations: bool = False,
) -> None:
    receipts = [receipt for part in parts for receipt in _by_rank(part)]
    note = note_on_starts(receipts, by_iterations)
    if as_json:
        content = {
            "out": str(out),
            "receipts": msgspec.to_builtins(receipts),
            "hosts": [{"host": part.host, "problem": part.problem} for part in parts],
            "not_brought": problems,
            "note": note,
        }
        print(msgspec.json.format(msgspec.json.encode(content)).decode())
        return
    console = make_console()
    console.print(receipts_table(parts))
    for file, problem in problems.items():
        console.print(f"not brought here: {file}: {problem}")
    if any(r.file for r in receipts):
        console.print(f"traces: {out}")
    if note:
        console.print(note)


def note_on_starts(receipts: Sequence[Receipt], by_iterations: bool) -> str:
    """Warning of traces that did not begin together; "" where they did."""
    starts = [r.first_ms for r in receipts if r.state == "valid" and r.first_ms is not None]
    if len(starts) < 2 or max(starts) - min(starts) <= TOLERANCE_MS:
        return ""
    note = f"first events are {max(starts) - min(starts):.0f} ms apart: look at absolute times"
    if by_iterations and any(_missed(receipts, host) for host in {r.host for r in receipts}):
        # Kineto rounds up where it stands when it hears of the request.
        note += (
            "; some began after others had ended, so these are not the same iterations: ask again, "
            "with --at-iteration or --duration-ms"
        )
    return note


def _missed(receipts: Sequence[Receipt], host: str) -> bool:
    """True if a trace on a host, whose clock is one, begins after another there has ended.

    Ranks that step together are in one iteration at one time.
    """
    spans = [
        (r.first_ms, r.last_ms)
        for r in receipts
        if r.host == host and r.first_ms is not None and r.last_ms is not None
    ]
    return len(spans) > 1 and max(first for first, _ in spans) > min(last for _, last in spans)


def print_processes(found: Sequence[tuple[str, Sequence[ProcessState]]], as_json: bool) -> None:
    if not as_json:
        make_console().print(processes_table(found))
        return
    hosts = [{"host": host, "processes": msgspec.to_builtins(those)} for host, those in found]
    print(msgspec.json.format(msgspec.json.encode({"hosts": hosts})).decode())


def processes_table(found: Sequence[tuple[str, Sequence[ProcessState]]]) -> Table:
    """Registered processes by host: whose they are, and whether a trace runs in them."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("host", "rank", "pid", "state", "asks every", "jobs", "command"):
        table.add_column(name, overflow="fold")
    for host, processes in found:
        for process in sorted(processes, key=lambda p: (not p.is_rank, p.rank or 0, p.pid)):
            table.add_row(
                host,
                str(process.rank) if process.is_rank else "-",
                str(process.pid),
                "idle" if process.idle else "tracing",
                f"{process.period_s:.1f} s",
                Text(", ".join(job for job in process.jobs if job != "0")),
                Text(process.command),
            )
    return table
