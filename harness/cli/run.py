"""``hanglab run``: scenarios with their controls, or one plain script."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.nccl_hint import tell_of_emulation
from hanglab.harness.cli.number_checks import finite
from hanglab.harness.cli.packs import PACK_HELP
from hanglab.harness.launchers.selection import DEFAULT_LAUNCHER, LAUNCHERS
from hanglab.harness.scenarios.number_bounds import MOST_RANKS
from hanglab.recorder.case.backends import DEFAULT_BACKEND, RUNNABLE

if TYPE_CHECKING:
    from hanglab.harness.jobs.plan import Options
    from hanglab.harness.jobs.run import Result, RunRequest
    from hanglab.harness.scenarios.declaration import Scenario

RUNS = Path("runs")


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """A callback of an option that refuses what is not among ``names``."""

    def check(name: str) -> str:
        if name not in names:
            raise typer.BadParameter(f"'{name}' is not one of {', '.join(names)}.")
        return name

    return check


def run(
    context: typer.Context,
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAMES OR FILES]",
            help="Scenarios by name, file, FILE::NAME or folder (all without any), or one plain "
            "script; "
            "the words after -- are the script's arguments.",
        ),
    ] = None,
    pack: Annotated[
        list[str] | None, typer.Option("--pack", metavar="NAME", help=PACK_HELP)
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            metavar=f"[{'|'.join(RUNNABLE)}],...",
            help="Backends of the process groups; each scenario runs on all that it is for.",
        ),
    ] = DEFAULT_BACKEND,
    first_backend: Annotated[
        bool,
        typer.Option("--first-backend", help="Run each on the first of the backends alone."),
    ] = False,
    launcher: Annotated[
        str,
        typer.Option(
            callback=one_of(LAUNCHERS),
            metavar=f"[{'|'.join(LAUNCHERS)}]",
            help="What starts the ranks.",
        ),
    ] = DEFAULT_LAUNCHER,
    world_size: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_RANKS, help="Ranks; each scenario's own without it."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Containers to spread the ranks over; one for each rank without it."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 1,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each, with seeds S, S+1, ...")] = 1,
    seed: Annotated[int, typer.Option(help="Seed S of the first run.")] = 0,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Run the controls too.")
    ] = True,
    hang_after: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds without movement that count as stuck; each scenario's own without it, "
            "5 for a plain script.",
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(min=1, callback=finite, help="Seconds that a job may take.")
    ] = 120.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the fastest few scenarios of each category.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Only the I-th of N parts of the scenarios; `hanglab merge` unites their results.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> int:
    """Run scenarios and judge their verdicts; of a plain script, print the verdict."""
    from hanglab.harness import capabilities
    from hanglab.harness.errors import MissingExtra, UsageError
    from hanglab.harness.jobs.backend_choice import read_backends
    from hanglab.harness.jobs.backend_plan import plan_on_backends
    from hanglab.harness.jobs.plan import Options
    from hanglab.harness.jobs.sample import quick_sample
    from hanglab.harness.jobs.shard import asked_for, read_shard
    from hanglab.harness.scenarios.packs import select

    backends = read_backends(backend)
    worlds = [world_size] if world_size else []
    options = Options(
        backend=",".join(backends),
        launcher=launcher,
        world_size=world_size,
        nodes=nodes,
        jobs=jobs,
        repeat=repeat,
        seed=seed,
        control=control,
        hang_after_s=hang_after,
        deadline_s=deadline,
        shard=read_shard(shard, asked_for(backends, [launcher], worlds)) if shard else None,
    )
    torch = capabilities.capability("torch")
    if not torch.available:
        raise MissingExtra("`hanglab run` needs torch, which is not installed.", torch.remedy)
    found = select(scenarios or [], pack or [])
    arguments: list[str] = context.obj or []
    if not found.plain:
        if arguments:
            raise UsageError(
                "Arguments after -- are for a plain script.",
                "A scenario declares its script's arguments with arguments=.",
            )
        if quick and shard is not None:
            raise UsageError(
                "--quick chooses by what a machine can run, so machines would not agree on shards.",
                "Leave one of the two out.",
            )
        choose = quick_sample if quick else None
        asked, refused = plan_on_backends(
            found, options, backends, first=first_backend, choose=choose
        )
        return _run_scenarios(asked, refused, options, backends, as_json)
    if len(found.plain) > 1 or found.scenarios or found.broken:
        raise UsageError(
            f"{found.plain[0]} declares no scenario, and a plain script runs alone.",
            "Run it by itself, or declare what is expected of it with @scenario.",
        )
    if len(backends) > 1:
        raise UsageError(
            f"A plain script runs once, and not on each of {', '.join(backends)}.",
            f"Name one backend, such as --backend {backends[0]}.",
        )
    if repeat > 1:
        raise UsageError(
            "A plain script runs once: nothing is expected of it that could be counted.",
            "Declare what is expected of it with @scenario, or leave --repeat out.",
        )
    if quick:
        raise UsageError(
            "A plain script is of no category that --quick could choose from.",
            "Leave --quick out.",
        )
    if shard is not None:
        raise UsageError("A plain script has no parts.", "Leave --shard out.")
    from hanglab.harness.jobs.plan import script_scenario

    return _run_script(script_scenario(found.plain[0], options, arguments), options, as_json)


def _run_scenarios(
    requests: list[RunRequest],
    settled: list[Result],
    options: Options,
    backends: Sequence[str],
    as_json: bool,
) -> int:
    from hanglab.harness.jobs.outcome import exit_code
    from hanglab.harness.jobs.results import write_results
    from hanglab.harness.jobs.run_folder import RunFolder
    from hanglab.harness.jobs.running import run_all
    from hanglab.harness.launchers.selection import Launchers
    from hanglab.harness.report import panel
    from hanglab.harness.report import results as report
    from hanglab.harness.report.progress import RunProgress

    begun = time.monotonic()
    folder = RunFolder.create(RUNS.absolute(), backends)
    console = panel.make_console(errors=True)
    report.print_plan(console, len(requests), settled)
    progress = RunProgress(console, requests)
    results = list(settled)
    with progress.shown(), stopping() as stopped:
        launchers = Launchers()
        try:
            results += run_all(requests, folder, launchers, options.jobs, stopped.event, progress)
        finally:
            launchers.close()
    content = write_results(folder, options, results, interrupted=stopped.signal is not None)
    if as_json:
        _print_json(content)
    else:
        out = panel.make_console()
        if requests:
            out.print(report.results_table(results))
        report.print_failures(out, results)
        report.print_skips(out, results)
        report.print_summary(out, results, time.monotonic() - begun, folder.path)
    if stopped.signal is not None:
        typer.echo(f"hanglab: interrupted; {folder.path} holds what had been done", err=True)
        return 128 + stopped.signal
    return exit_code(result.outcome for result in results)


def _run_script(script: Scenario, options: Options, as_json: bool) -> int:
    """Runs a plain script once; HANGLAB_FAULT of the caller says which half of it."""
    from dataclasses import replace

    from hanglab.harness.cli.analyze import analyze_and_show
    from hanglab.harness.jobs.plan import requests_of
    from hanglab.harness.jobs.results import write_results
    from hanglab.harness.jobs.run_folder import RunFolder, Variant
    from hanglab.harness.jobs.running import run_all
    from hanglab.harness.launchers.selection import Launchers
    from hanglab.harness.report import panel
    from hanglab.harness.report.progress import RunProgress

    variant: Variant = "control" if os.environ.get("HANGLAB_FAULT") == "0" else "fault"
    asked = requests_of(script, replace(options, control=True))
    request = next(request for request in asked if request.variant == variant)
    folder = RunFolder.create(RUNS.absolute())
    console = panel.make_console(errors=True)
    progress = RunProgress(console, [request])
    with progress.shown(), stopping() as stopped:
        launchers = Launchers()
        try:
            results = run_all([request], folder, launchers, 1, stopped.event, progress)
        finally:
            launchers.close()
    write_results(folder, options, results, interrupted=stopped.signal is not None)
    if stopped.signal is not None:
        typer.echo(f"hanglab: interrupted; {folder.path} holds what had been done", err=True)
        return 128 + stopped.signal
    result = results[0]
    if result.verdict is None or result.folder is None:
        typer.echo(f"hanglab: {result.judgement.reason}\n{result.detail}", err=True)
        return 4
    tell_of_emulation(result.verdict)
    return analyze_and_show(result.folder / "case", as_json)


class _Stopped:
    def __init__(self) -> None:
        self.event = threading.Event()
        #: The signal that asked for it.
        self.signal: int | None = None


@contextmanager
def stopping() -> Iterator[_Stopped]:
    """Turns Ctrl-C and requests to end into an event; a second Ctrl-C interrupts at once."""
    stopped = _Stopped()

    def stop(number: int, frame: object) -> None:
        if stopped.signal is not None:
            raise KeyboardInterrupt
        stopped.signal = number
        stopped.event.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_json(content: object) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(content)).decode())
