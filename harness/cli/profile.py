"""``hanglab profile``: a trace of running processes, and a receipt for each."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from hanglab.recorder.profiling.campaign import HostPart
    from hanglab.recorder.profiling.client import Door
    from hanglab.recorder.profiling.notes import Note


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
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the traces.")] = Path(
        "traces"
    ),
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token of agents on other hosts.")
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="Certificate to trust; speaks TLS with other hosts.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the receipts as JSON.")] = False,
) -> int:
    """Take a trace of a running job, hung or not, and say of each process what came of it."""
    from hanglab.harness.errors import HanglabError, UsageError
    from hanglab.recorder.profiling import campaign
    from hanglab.recorder.profiling.configuration import Detail, Window
    from hanglab.recorder.profiling.receipts import Asked, Selection

    if at_iteration and not iterations:
        raise UsageError("--at-iteration needs --iterations.", "Say how many: --iterations 3.")
    if start_in is not None and iterations:
        raise UsageError("--start-in is a time, and --iterations counts steps.", "Use one of them.")
    doors = _doors(target, host or [], hostfile, job, token_file, tls_ca)
    asked = Asked(
        Selection(_ranks(ranks), list(pid or []), job),
        Window(duration_ms, warmup, 0, iterations, at_iteration),
        Detail(shapes, stacks, flops, modules),
        timeout,
    )
    own, dynologs = _apart(doors)
    if dynologs:
        return _ask_dynolog(dynologs, asked, out)
    if out.exists() and not (out.is_dir() and os.access(out, os.W_OK)):
        raise UsageError(f"{out} is no folder that can be written.", "Choose another with --out.")
    try:
        parts = campaign.place(campaign.Plan(own, asked, start_in))
    except campaign.TooEarly as error:
        raise UsageError(
            f"Too early: {error}.", "Ask for a later --start-in, or leave it out."
        ) from None
    if not host and hostfile is None:
        # Agents of other jobs on this host were only asked because they are there.
        parts = [part for part in parts if not part.beside]
    _wait(parts, as_json)
    if any(receipt.file for part in parts for receipt in part.receipts):
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HanglabError(
                f"{out} cannot be made: {error.strerror}.", "Choose another --out."
            ) from None
    problems = campaign.bring(parts, out)
    _print(parts, problems, out, as_json)
    receipts = [receipt for part in parts for receipt in part.receipts]
    good = receipts and all(receipt.state == "valid" for receipt in receipts)
    return 0 if good and not problems and not any(part.problem for part in parts) else 1


def _wait(parts: Sequence[HostPart], as_json: bool) -> None:
    from rich.live import Live

    from hanglab.harness.panel import make_console
    from hanglab.recorder.profiling import campaign

    console = make_console(errors=True)
    try:
        if as_json or not console.is_terminal:
            campaign.follow(parts, lambda parts: None)
            return
        with Live(_table(parts), console=console, transient=True) as live:
            campaign.follow(parts, lambda parts: live.update(_table(parts)))
    except KeyboardInterrupt:
        count = campaign.withdraw(parts)
        typer.echo(f"hanglab: {count} requests that no process had got yet are withdrawn", err=True)
        raise


def _table(parts: Sequence[HostPart]) -> Table:
    from rich.table import Table
    from rich.text import Text

    styles = {"valid": "green", "failed": "red"}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("host", "rank", "pid", "state", "events", "seconds", "trace, or what is wrong"):
        table.add_column(name, overflow="fold")
    for part in parts:
        if part.problem:
            table.add_row(part.host, "", "", Text("failed", "red"), "", "", Text(part.problem))
        for receipt in sorted(part.receipts, key=lambda r: (r.rank is None, r.rank or 0)):
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
                Text(receipt.state, styles.get(receipt.state, "yellow")),
                str(receipt.events or ""),
                seconds,
                Text(note),
            )
    return table


def _print(parts: Sequence[HostPart], problems: dict[str, str], out: Path, as_json: bool) -> None:
    import msgspec

    from hanglab.harness.panel import make_console
    from hanglab.recorder.profiling.traces import TOLERANCE_MS

    receipts = [receipt for part in parts for receipt in part.receipts]
    starts = [r.first_ms for r in receipts if r.state == "valid" and r.first_ms is not None]
    if as_json:
        content = {
            "out": str(out),
            "receipts": msgspec.to_builtins(receipts),
            "hosts": [{"host": part.host, "problem": part.problem} for part in parts],
            "not_brought": problems,
        }
        print(msgspec.json.format(msgspec.json.encode(content)).decode())
        return
    console = make_console()
    console.print(_table(parts))
    for file, problem in problems.items():
        console.print(f"not brought here: {file}: {problem}")
    if any(r.file for r in receipts):
        console.print(f"traces: {out}")
    if len(starts) > 1 and max(starts) - min(starts) > TOLERANCE_MS:
        console.print(
            f"first events are {max(starts) - min(starts):.0f} ms apart: look at absolute times"
        )


def _ranks(text: str) -> list[int]:
    from hanglab.harness.errors import UsageError

    found: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"{part!r} is no rank.", "Say --ranks 0,3-5.")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def _doors(
    case: Path | None,
    hosts: list[str],
    hostfile: Path | None,
    job: str,
    token_file: Path | None,
    tls_ca: Path | None,
) -> list[Door]:
    from hanglab.harness.cli.agent import _token
    from hanglab.harness.errors import HanglabError
    from hanglab.recorder.profiling import notes, wire
    from hanglab.recorder.profiling.access import client_tls
    from hanglab.recorder.profiling.client import Door
    from hanglab.recorder.profiling.hosts import NoHosts, from_hostfile, from_names, from_slurm

    try:
        names = from_names(hosts) + (from_hostfile(hostfile) if hostfile else [])
        if not names and job and not notes.read_all():
            names = from_slurm(job)
    except NoHosts as error:
        raise HanglabError(f"No hosts: {error}.", "Name them with --host or --hostfile.") from None
    if names:
        token = _token(token_file)
        try:
            tls = client_tls(tls_ca) if tls_ca is not None else None
        except OSError as error:
            raise HanglabError(f"{tls_ca} cannot be used: {error}.", "It must be PEM.") from None
        return [Door(*_address(name, wire.PORT), token, tls) for name in names]
    found = notes.read_all()
    if case is not None:
        wanted = os.path.realpath(case)
        found = [note for note in found if note.case and os.path.realpath(note.case) == wanted]
    if not found:
        raise HanglabError(
            f"No agent is recording into {case}." if case else "No agent runs on this host.",
            "Start the job under `hanglab record`, or `hanglab agent` and the job with "
            "KINETO_USE_DAEMON=1 in its environment; --host names agents elsewhere.",
        )
    return [_door(note) for note in found]


def _door(note: Note) -> Door:
    from hanglab.recorder.profiling.access import client_tls
    from hanglab.recorder.profiling.client import Door

    tls = client_tls(Path(note.authority)) if note.authority else None
    return Door("127.0.0.1", note.port, note.token, tls)


def _address(name: str, port: int) -> tuple[str, int]:
    """``name``, ``name:port``, ``[v6]:port``."""
    if name.startswith("["):
        inside, _, after = name[1:].partition("]")
        return inside, int(after[1:]) if after[1:].isdecimal() else port
    head, colon, tail = name.rpartition(":")
    if colon and tail.isdecimal() and ":" not in head:
        return head, int(tail)
    return name, port


def _apart(doors: Sequence[Door]) -> tuple[list[Door], list[Door]]:
    """Doors of hanglab's agents, and doors of dynolog daemons."""
    from hanglab.recorder.profiling import client

    own: list[Door] = []
    dynologs: list[Door] = []
    for door in doors:
        try:
            (dynologs if client.is_dynolog(door) else own).append(door)
        except (client.AgentUnreachable, client.AgentRefused):
            # Its receipt will say what is wrong with it.
            own.append(door)
    return own, dynologs


def _ask_dynolog(doors: Sequence[Door], asked: object, out: Path) -> int:
    """A dynolog daemon gives no receipts: whom it told, and where files should appear."""
    from hanglab.recorder.profiling import client
    from hanglab.recorder.profiling.configuration import configuration, trace_path
    from hanglab.recorder.profiling.receipts import Asked

    assert isinstance(asked, Asked)
    good = True
    file = str(out.absolute() / f"trace-{time.strftime('%Y%m%d-%H%M%S')}.pt.trace.json")
    out.mkdir(parents=True, exist_ok=True)
    text = configuration(file, "hanglab", asked.window, asked.detail)
    selection = asked.selection
    for door in doors:
        job = int(selection.job) if selection.job.isdecimal() else 0
        try:
            answer = client.request_dynolog(door, text, job, selection.pids, 1000)
        except (client.AgentUnreachable, client.AgentRefused) as error:
            typer.echo(f"{door}: {error}", err=True)
            good = False
            continue
        triggered = answer.get("activityProfilersTriggered") or []
        good = good and bool(triggered)
        typer.echo(
            f"{door}: a dynolog daemon told {len(triggered)} of "
            f"{len(answer.get('processesMatched') or [])} processes; it gives no receipts"
        )
        for process in triggered:
            typer.echo(f"  {trace_path(file, int(process))}")
    return 0 if good else 1
