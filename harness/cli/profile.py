"""``hanglab profile``: a trace of running processes, and a receipt for each."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hanglab.recorder.profiling.client import Endpoint
    from hanglab.recorder.profiling.multi_host_request import HostPart


def profile(
    target: Annotated[
        Path | None,
        typer.Argument(metavar="[CASE]", help="The Case that a running job is recorded into."),
    ] = None,
    ranks: Annotated[
        str, typer.Option(metavar="LIST", help="Ranks such as 0,3-5; all without it.")
    ] = "",
    job: Annotated[
        str, typer.Option(metavar="ID", help="Job id: SLURM's (1234 or 1234_7), torchrun's run id.")
    ] = "",
    pid: Annotated[
        list[int] | None, typer.Option(min=1, help="Process, or one above it; may be repeated.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Host with an agent or a dynolog daemon, as NAME[:PORT]; repeatable."),
    ] = None,
    hostfile: Annotated[Path | None, typer.Option(help="File with a host a line.")] = None,
    duration_ms: Annotated[int, typer.Option(min=1, help="Length of the trace.")] = 500,
    iterations: Annotated[
        int, typer.Option(min=0, help="Length in optimizer steps instead; 0 for none.")
    ] = 0,
    warmup: Annotated[
        int, typer.Option(metavar="MS", min=0, help="Warm-up before the trace, in milliseconds.")
    ] = 0,
    start_in: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="Common start, in so many seconds.")
    ] = None,
    at_iteration: Annotated[
        int, typer.Option(metavar="N", min=0, help="Start at this iteration.")
    ] = 0,
    shapes: Annotated[bool, typer.Option("--shapes", help="Record shapes of inputs.")] = False,
    stacks: Annotated[bool, typer.Option("--stacks", help="Record Python stacks.")] = False,
    flops: Annotated[bool, typer.Option("--flops", help="Estimate operations.")] = False,
    modules: Annotated[bool, typer.Option("--modules", help="Record modules.")] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds to wait for a trace beyond its window.")
    ] = 30.0,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Where to put the traces; below it if it holds something already."
        ),
    ] = Path("traces"),
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token of agents on other hosts.")
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="Certificate to trust; speaks TLS with other hosts.")
    ] = None,
    list_processes: Annotated[
        bool, typer.Option("--list", help="Only list the processes that can be profiled.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the receipts, or the list, as JSON.")
    ] = False,
) -> int:
    """Take a trace of a running job, hung or not, and say of each process what came of it."""
    from hanglab.harness.errors import UsageError
    from hanglab.harness.recording import dynolog_traces
    from hanglab.harness.recording.endpoints import find_endpoints, tell_apart
    from hanglab.harness.report import trace_receipts
    from hanglab.recorder.profiling import multi_host_request
    from hanglab.recorder.profiling.configuration import Detail, TraceWindow
    from hanglab.recorder.profiling.trace_records import ProfileRequest, Selection

    if at_iteration and not iterations:
        raise UsageError("--at-iteration needs --iterations.", "Say how many: --iterations 3.")
    if start_in is not None and iterations:
        raise UsageError("--start-in is a time, and --iterations counts steps.", "Use one of them.")
    wanted = _ranks(ranks)
    endpoints = find_endpoints(target, host or [], hostfile, job, token_file, tls_ca)
    own, others = tell_apart(endpoints)
    if list_processes:
        return _list(own, others, as_json)
    asked = ProfileRequest(
        Selection(wanted, list(pid or []), job),
        TraceWindow(duration_ms, warmup, 0, iterations, at_iteration),
        Detail(shapes, stacks, flops, modules),
        timeout,
    )
    if out.exists() and not (out.is_dir() and os.access(out, os.W_OK)):
        raise UsageError(f"{out} is no folder that can be written.", "Choose another with --out.")
    begun = time.time()
    try:
        if others:
            asked, start_in = dynolog_traces.fitting(asked, start_in)
        plan = multi_host_request.RequestPlan(own, asked, start_in, begun)
        with trace_receipts.withdrawn_when_interrupted(plan):
            parts = multi_host_request.place(plan)
            if not host and hostfile is None:
                # Agents of other jobs on this host were only asked because they are there.
                parts = [part for part in parts if not part.beside]
            start_ms = (begun + start_in) * 1e3 if start_in is not None else 0.0
            foreign = dynolog_traces.place(others, asked, start_ms, out) if others else []
            trace_receipts.wait(parts, as_json)
    except multi_host_request.TooEarly as error:
        raise UsageError(
            f"Too early: {error}.", "Ask for a later start, or leave it out."
        ) from None
    dynolog_traces.follow(foreign, asked, start_ms)
    folder = out
    if any(receipt.file for part in parts for receipt in part.receipts):
        folder = _make_folder(out, parts)
    problems = multi_host_request.bring(parts, folder)
    parts += foreign
    trace_receipts.print_receipts(parts, problems, folder, as_json, iterations > 0)
    everyone = [receipt for part in parts for receipt in part.receipts]
    good = everyone and all(receipt.state == "valid" for receipt in everyone)
    return 0 if good and not problems and not any(part.problem for part in parts) else 1


def _ranks(text: str) -> list[int]:
    from hanglab.harness.errors import UsageError

    found: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"{part!r} is no rank.", "Say --ranks 0,3-5.")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def _make_folder(out: Path, parts: Sequence[HostPart]) -> Path:
    """``out``, or a folder below it named by the order where traces lie in it already.

    Tools that read a folder of traces want one of each rank.
    """
    from hanglab.harness.errors import HanglabError

    try:
        folder = out
        if out.is_dir() and any(out.iterdir()):
            folder = out / next(part.order for part in parts if part.order)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HanglabError(
            f"{out} cannot be made: {error.strerror}.", "Choose another --out."
        ) from None
    return folder


def _list(endpoints: Sequence[Endpoint], dynologs: Sequence[Endpoint], as_json: bool) -> int:
    from hanglab.harness.report.trace_receipts import print_processes
    from hanglab.recorder.profiling import client

    found = []
    good = True
    for endpoint in endpoints:
        try:
            status = client.status(endpoint)
        except (client.AgentUnreachable, client.AgentRefused) as error:
            typer.echo(f"{endpoint}: {error}", err=True)
            good = False
            continue
        found.append((status.host, status.processes))
    for endpoint in dynologs:
        typer.echo(f"{endpoint}: a dynolog daemon answers there, and lists no processes", err=True)
    print_processes(found, as_json)
    return 0 if good else 1
