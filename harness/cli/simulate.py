"""``hanglab simulate``: dumps of a job of any size that hangs by a known fault."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.new_folders import check_unused
from hanglab.harness.cli.number_checks import finite
from hanglab.harness.cli.run import one_of
from hanglab.recorder.system.mount_table import space_of

#: Beyond it, numbers of groups would meet other texts of a dump.
_MOST_RANKS = 131_072
#: Share of the room of a disk that dumps may take by what is advised.
_FILLED = 0.9
_LAYOUTS = ("world", "fsdp", "hsdp", "3d", "4d", "moe")
_FAULTS = (
    "none",
    "skip",
    "extra",
    "wrong_operation",
    "size",
    "dtype",
    "stop",
    "device_stop",
    "group_order",
    "p2p_deadlock",
    "unmatched",
    "stray",
)


def simulate(
    ranks: Annotated[int, typer.Option(min=2, max=_MOST_RANKS, help="Ranks of the job.")],
    fault: Annotated[
        str,
        typer.Option(
            callback=one_of(_FAULTS),
            metavar="KIND",
            help=f"What one rank does wrong: {', '.join(_FAULTS)}. With none the job ends.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A new or empty folder.")],
    layout: Annotated[
        str,
        typer.Option(
            callback=one_of(_LAYOUTS),
            metavar=f"[{'|'.join(_LAYOUTS)}]",
            help="Process groups of the job.",
        ),
    ] = "world",
    operations: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Operations of each rank, at least.")
    ] = 2000,
    seed: Annotated[int, typer.Option(help="The same seed writes the same files.")] = 0,
    missing: Annotated[
        int, typer.Option(min=0, help="Ranks, none of them to blame, that leave no dump.")
    ] = 0,
    wrapped: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="ENTRIES", help="Entries that each ring still has; all without it."
        ),
    ] = None,
    clock_offset_ms: Annotated[
        float,
        typer.Option(
            min=0, max=1e9, callback=finite, help="By how much clocks are off, at most, either way."
        ),
    ] = 0.0,
) -> int:
    """Write the Flight Recorder dumps of an NCCL job that hangs, as torch would write them.

    What is wrong with the job stands beside DIR, in DIR.truth.json.
    """
    # numpy would start a thread per core for algebra that nobody asks for.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob, write_dump
    from hanglab.harness.jobs.run_folder import ArtifactsError, write_json
    from hanglab.harness.report.panel import make_console
    from hanglab.harness.report.progress import progress_of

    truth = out.absolute().with_name(f"{out.absolute().name}.truth.json")
    check_unused(out)
    _check_unwritten(truth)
    options = JobOptions(ranks, layout, fault, operations, seed, missing, wrapped, clock_offset_ms)
    console = make_console(errors=True)
    with console.status("simulating"):
        job = SimulatedJob(options)
    files = ranks - len(job.missing)
    written, dumps, is_new = 0, 0, not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for rank, data in progress_of(console, "dumps", job.dumps(), files):
            if not written:
                _check_room(out, len(data), files, len(job.missing))
                write_json(truth, job.truth)
            write_dump(out, rank, data, job.written_ns(rank))
            written += len(data)
            dumps += 1
    except KeyboardInterrupt:
        typer.echo(f"hanglab: interrupted; {out} holds {dumps} of {files} dumps", err=True)
        return 130
    except OSError as failure:
        if is_new and not written and out.is_dir():
            with contextlib.suppress(OSError):
                out.rmdir()
        if isinstance(failure, ArtifactsError):
            raise
        raise ArtifactsError(f"{out} cannot be written: {failure.strerror or failure}") from failure
    told = job.truth
    print(f"{out}: {dumps} dumps, {written / 1e6:.1f} MB")
    if told.culprits:
        who = ", ".join(map(str, told.culprits))
        print(
            f"fault {told.fault}, rank {who}, {told.operation} of {told.group} (line {told.line})"
        )
    print(f"the truth: {truth}; `hanglab analyze {out}` has to find it")
    return 0


def _check_unwritten(truth: Path) -> None:
    from hanglab.harness.errors import UsageError

    if truth.exists():
        raise UsageError(
            f"{truth} is there already.", "Give another folder, or remove that file first."
        )


def _check_room(out: Path, size: int, files: int, missing: int) -> None:
    """Raises ArtifactsError rather than fill the disk: dumps are of nearly one size."""
    from rich.filesize import decimal

    from hanglab.harness.jobs.run_folder import ArtifactsError

    free = space_of(out).free_bytes or 0
    if size * files <= free:
        return
    fitting = int(free * _FILLED) // size
    raise ArtifactsError(
        f"{files} dumps of about {decimal(size)} take {decimal(size * files)}, and {out} has "
        f"room for {decimal(free)}: each lists the members of its groups.",
        f"--missing {missing + files - fitting} leaves so many dumps out, none of the culprits', "
        f"that the other {fitting} fit; --wrapped 100 has each hold its last 100 entries alone; "
        "or name a folder with more room."
        if fitting > 1
        else "--wrapped 100 has each hold its last 100 entries alone; or name a folder with more "
        "room.",
    )
