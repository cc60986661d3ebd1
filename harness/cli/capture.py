"""``hanglab capture``: what can be had of a job that runs already, and the verdict on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.number_checks import finite

if TYPE_CHECKING:
    from hanglab.recorder.attach.tree import FoundRank


def capture(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PID...|CASE",
            help="A process of the job (its launcher, a rank, or one above or below), or the Case "
            "into which it is being recorded. Several: exactly these ranks.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every job on this host that this user may look at.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the Case, new or empty (with --all: of the Cases). Without it a "
            "recorded job's own Case is used, for others hanglab-case-<time>, here.",
        ),
    ] = None,
    watch: Annotated[
        float,
        typer.Option(
            min=0.5,
            callback=finite,
            metavar="SECONDS",
            help="Without movement for so long the job counts as hung; three times this while a "
            "rank computes.",
        ),
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print hanglab.verdict/1.")] = False,
    kubernetes: Annotated[
        str | None,
        typer.Option(
            "--kubernetes",
            metavar="JOB",
            help="Capture in all pods of this job on a Kubernetes cluster, and unite their Cases.",
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of JOB; without it, the one of kubectl.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Cluster and user, as of kubectl.")
    ] = None,
    container: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of JOB's pods; without it hanglab's own, or the first."),
    ] = None,
    packed: Annotated[
        bool,
        typer.Option(
            "--packed",
            help="With --all: write the Case to standard output, packed, and conclude nothing.",
        ),
    ] = False,
    pod: Annotated[
        str | None,
        typer.Option("--pod", metavar="UID", help="With --packed: of ranks of this pod alone."),
    ] = None,
) -> int:
    """Capture a job that runs already, recorded or not, and name the cause.

    Of a job that was not started with `hanglab record`, ranks are found in the
    tree of processes; their stacks, states and what surrounds them are taken
    from outside, and torch's own pipe is asked where there is one. The job goes
    on untouched.

    Exits as `hanglab analyze`: 0 with a verdict, 2 if it is inconclusive, 4 if
    the processes cannot be read; 64 for wrong usage, such as a process that does
    not exist.
    """
    from hanglab.harness.errors import UsageError
    from hanglab.harness.recording import running_jobs

    if (every, bool(targets), kubernetes is not None).count(True) != 1:
        raise UsageError(
            "Give either process ids or a Case, or --all, or --kubernetes JOB.",
            "hanglab capture --help says more.",
        )
    if packed and not every:
        raise UsageError("--packed goes with --all.", "hanglab capture --help says more.")
    if kubernetes is not None:
        return _capture_pods(kubernetes, namespace, context, container, out, watch, as_json)
    if packed:
        return _capture_packed(watch, pod)
    if every:
        return _capture_each(running_jobs.all_ranks(), out, watch, as_json)
    first, *others = targets or []
    if others:
        ranks = running_jobs.ranks_at(_process_ids([first, *others]))
    elif first.isdecimal():
        ranks = running_jobs.ranks_of(int(first))
    else:
        ranks = running_jobs.ranks_of_case(Path(first))
    return _capture(ranks, out, watch, as_json)


def _process_ids(words: list[str]) -> list[int]:
    from hanglab.harness.errors import UsageError

    if not all(word.isdecimal() for word in words):
        raise UsageError(
            "Of several words each must be a rank's process id.",
            "hanglab capture --help says more.",
        )
    return [int(word) for word in words]


def _capture_each(
    jobs: list[list[FoundRank]], out: Path | None, watch: float, as_json: bool
) -> int:
    """One job that cannot be captured, such as one that ends meanwhile, costs only itself."""
    from hanglab.harness.errors import HanglabError

    codes = []
    for number, ranks in enumerate(jobs):
        place = out / str(number) if out is not None and len(jobs) > 1 else out
        typer.echo(
            f"hanglab: job {number + 1} of {len(jobs)} is watched and captured: "
            f"processes {', '.join(str(rank.pid) for rank in ranks)}",
            err=True,
        )
        try:
            codes.append(_capture(ranks, place, watch, as_json))
        except HanglabError as error:
            typer.echo(f"hanglab: {error} {error.advice}", err=True)
            codes.append(error.exit_code)
    return max(codes)


def _capture_packed(watch: float, pod: str | None) -> int:
    import sys

    from hanglab.harness.recording import running_jobs
    from hanglab.harness.recording.packed_capture import capture_packed, left_case, of_pod

    try:
        jobs = running_jobs.all_ranks()
        jobs = of_pod(jobs, pod) if pod is not None else jobs
        if not jobs:
            raise running_jobs.NoRanks(f"No rank of pod {pod} runs here.")
    except running_jobs.NoRanks:
        if pod is not None or left_case() is None:
            raise
        jobs = []
    capture_packed(jobs, watch, sys.stdout.buffer)
    return 0


def _capture_pods(
    job: str,
    namespace: str | None,
    context: str | None,
    container: str | None,
    out: Path | None,
    watch: float,
    as_json: bool,
) -> int:
    from hanglab.harness.cli.analyze import analyze_and_show
    from hanglab.harness.jobs.run_folder import ArtifactsError
    from hanglab.harness.kubernetes.connection import connect
    from hanglab.harness.kubernetes.errors import NothingCollected
    from hanglab.harness.recording import case_folder
    from hanglab.harness.recording.pod_cases import collect

    case = out.absolute() if out is not None else case_folder.name_folder(Path.cwd())
    case_folder.check_folder(case)
    cluster = connect(context, namespace)
    try:
        case_folder.make_folder(case)
        collected = collect(cluster, job, case, watch, container)
    except OSError as error:
        raise ArtifactsError(f"{case} cannot be written: {error.strerror or error}") from error
    for sentence in collected.lacking:
        typer.echo(f"hanglab: {sentence}", err=True)
    if len(collected.lacking) == len(collected.pods):
        raise NothingCollected(f"None of the {len(collected.pods)} pods of {job} gave a Case.")
    code = analyze_and_show(case, as_json)
    typer.echo(f"hanglab: the Case is {case}", err=True)
    return code


def _capture(ranks: list[FoundRank], out: Path | None, watch: float, as_json: bool) -> int:
    import shutil

    from hanglab.harness.cli.analyze import analyze_and_show
    from hanglab.harness.jobs.run_folder import ArtifactsError
    from hanglab.harness.recording import case_folder, running_jobs

    own = running_jobs.recorded_case(ranks)
    case = out.absolute() if out is not None else (own or case_folder.name_folder(Path.cwd()))
    if case != own:
        case_folder.check_folder(case)
        try:
            case_folder.make_folder(case)
        except OSError as error:
            raise ArtifactsError(f"{case} cannot be written: {error.strerror or error}") from error
    if own is None:
        running_jobs.capture_unrecorded(case, ranks, watch)
    else:
        running_jobs.capture_recorded(own, ranks, watch, _say_rest)
        if case != own:
            shutil.copytree(own, case, dirs_exist_ok=True)
    code = analyze_and_show(case, as_json)
    typer.echo(f"hanglab: the Case is {case}", err=True)
    return code


def _say_rest(rested_s: float, limit_s: float) -> None:
    typer.echo(
        f"hanglab: the job has rested for {rested_s:.0f} s; its recorder counts it as hung after "
        f"{limit_s:.0f} s",
        err=True,
    )
