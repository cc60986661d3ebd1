"""``hanglab record``: a command of the user's, recorded without changing its code."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Literal

import typer

from hanglab.harness.cli.nccl_hint import tell_of_emulation
from hanglab.harness.cli.number_checks import finite


def record(
    context: typer.Context,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR|URL",
            help="Folder of the Case, new or empty; without it hanglab-case-<time>, here. Where a "
            "URL is given, such as s3://bucket/name, that one is sent there at the end.",
        ),
    ] = None,
    hang_after: Annotated[
        float,
        typer.Option(
            min=0.5,
            callback=finite,
            metavar="SECONDS",
            help="Without movement for so long the job counts as hung. Grows by itself to five "
            "times the longest pause that the job has made (at most a minute); to three times "
            "this while nothing has been communicated yet; and while a rank computes to three "
            "times this, to ten times where it stands at one instruction, as in a long native "
            "call, or to ten times that rank's longest pause.",
        ),
    ] = 30.0,
    then: Annotated[
        Literal["kill", "leave"],
        typer.Option(help="What to do with a job that hangs, once it has been captured."),
    ] = "kill",
    profile_slow: Annotated[
        float | None,
        typer.Option(
            min=1.1,
            callback=finite,
            metavar="K",
            help="Take a trace of all ranks when a section or step takes K times its median, and "
            "of ranks that the job's straggler detector calls slow; at most once a minute.",
        ),
    ] = None,
    source: Annotated[
        bool,
        typer.Option(
            "--source/--no-source",
            help="Keep the source of functions on the ranks' stacks and at their calls, in which "
            "the decision behind a hang is found.",
        ),
    ] = True,
    local_values: Annotated[
        bool,
        typer.Option(
            "--locals/--no-locals",
            help="Keep the values of the variables that conditions of these functions name.",
        ),
    ] = False,
    branches: Annotated[
        bool,
        typer.Option(
            "--branches/--no-branches",
            help="Record which branches the user's code takes, to name the one that parted ranks.",
        ),
    ] = False,
    as_json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the verdict there too, as JSON."),
    ] = None,
) -> int:
    """Run a command that starts ranks, capture it when it hangs or fails, name the cause.

    hanglab record [OPTIONS] -- torchrun --nproc-per-node 4 train.py ...

    Works with any command: torchrun, accelerate launch, python with
    torch.multiprocessing.spawn, srun, mpirun, a shell script. Nothing has to be
    changed in its code. Its input, output and signals are passed through; the
    verdict is printed on standard error.

    Captures once: when nothing moves, when a rank fails, when torch writes a
    dump because of a timeout, and at Ctrl-C, before the job gets it.

    The verdict also says whether ranks were slow, or results are undefined.

    Exits with the command's own code (128 + N if signal N ended it), also where
    the job was slow or its results are undefined; 124 if hanglab ended a job
    that hung; 130 after Ctrl-C; 64 for wrong usage, such as a command that does
    not exist.
    """
    import os

    from hanglab.harness.recording import case_folder
    from hanglab.harness.recording.command import check_command

    words: list[str] = context.obj or []
    check_command(words)
    if not source:
        os.environ["HANGLAB_SOURCE"] = "0"
    if local_values:
        os.environ["HANGLAB_LOCALS"] = "1"
    if branches:
        os.environ["HANGLAB_BRANCHES"] = "1"
    url = _checked_url(out)
    named = Path(out) if out is not None and url is None else None
    case = (named or case_folder.name_folder(Path.cwd())).absolute()
    if named is not None:
        case_folder.check_folder(case)
    existed = os.path.lexists(case)
    try:
        case = case_folder.make_some_folder(case, another=named is None)
    except OSError as error:
        typer.echo(f"hanglab: nothing is recorded: {error}", err=True)
        os.execvp(words[0], words)
    told = _tell_of_room(case)
    from hanglab.harness.recording.command import NoSuchCommand
    from hanglab.harness.recording.session import RecordingRequest, RecordingSession

    try:
        outcome = RecordingSession(
            RecordingRequest(words, case, hang_after, then, profile_slow)
        ).run()
    except NoSuchCommand:
        if not existed:
            import shutil

            shutil.rmtree(case, ignore_errors=True)
        raise
    if not told:
        _tell_of_room(case)
    tell_of_emulation(outcome.verdict)
    if as_json is not None and outcome.verdict is not None:
        from hanglab.harness.jobs.run_folder import ArtifactsError, write_json

        try:
            write_json(as_json, outcome.verdict)
        except ArtifactsError as error:  # the job's own code matters more
            typer.echo(f"hanglab: {error} {error.advice}", err=True)
    if url is not None:
        _send(case, url)
    return outcome.code


def _checked_url(out: str | None) -> str | None:
    """The URL that --out names, if it names one; raises MissingExtra and UsageError.

    A store that is away now may be back when the job has ended.
    """
    if out is None or "://" not in out:
        return None
    from hanglab.harness.storage.errors import StorageError
    from hanglab.harness.storage.locations import is_url, place_of

    if not is_url(out):
        return None
    with contextlib.suppress(StorageError):
        place_of(out)
    return out


def _send(case: Path, url: str) -> None:
    """Sends the Case; where that fails it stays here, and the job's own code matters more."""
    from hanglab.harness.cli.upload import send
    from hanglab.harness.errors import HanglabError

    try:
        typer.echo(f"hanglab: sent to {send(case, url)}; {case} stays, too", err=True)
    except HanglabError as error:
        typer.echo(f"hanglab: {error} {error.advice}", err=True)
    except KeyboardInterrupt:
        typer.echo(f"hanglab: not sent; `hanglab upload {case} {url}` goes on", err=True)


def _tell_of_room(case: Path) -> bool:
    """Say so where the Case's disk is full; the job goes on."""
    from hanglab.harness.recording import case_folder

    words = case_folder.want_of_room(case)
    if words:
        typer.echo(f"hanglab: {words}", err=True)
    return bool(words)
