"""Many jobs: which ones are asked for, and running them side by side."""

from __future__ import annotations

import concurrent.futures
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from hanglab.harness.faults.device import DeviceFault
from hanglab.harness.faults.host_fault import HostFault
from hanglab.harness.jobs.outcome import Judgement, Outcome, exit_code
from hanglab.harness.jobs.resources import Allotment
from hanglab.harness.jobs.run import Result, RunRequest, expectation, run
from hanglab.harness.jobs.run_folder import ArtifactsError, RunFolder, Variant, write_json
from hanglab.harness.launchers.selection import DEFAULT_LAUNCHER, LAUNCHERS, Launchers, launcher_of
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.discovery import BrokenFile, Found
from hanglab.harness.system import capabilities
from hanglab.recorder.case.backends import DEFAULT_BACKEND, backend_of

SCHEMA: Final = "hanglab.run/1"
DEFAULT_DEADLINE_S: Final = 120.0
#: A user's script pauses for longer than a scenario does: imports, data, checkpoints.
SCRIPT_HANG_AFTER_S: Final = 5.0


@dataclass(frozen=True)
class Options:
    """Options of a run; None leaves a thing to each scenario."""

    backend: str = DEFAULT_BACKEND
    launcher: str = DEFAULT_LAUNCHER
    world_size: int | None = None
    #: Containers to spread the ranks over.
    nodes: int | None = None
    jobs: int = 1
    repeat: int = 1
    seed: int = 0
    control: bool = True
    hang_after_s: float | None = None
    deadline_s: float = DEFAULT_DEADLINE_S


class Listener(Protocol):
    """Hears how a suite gets on; called from several threads."""

    def phase(self, request: RunRequest, phase: str) -> None: ...

    def result(self, result: Result) -> None: ...


def plan(found: Found, options: Options) -> tuple[list[RunRequest], list[Result]]:
    """Jobs to run, and the results of those that cannot be: broken files and skips."""
    requests: list[RunRequest] = []
    settled = [_broken(broken) for broken in found.broken]
    for scenario in found.scenarios:
        asked = requests_of(scenario, options)
        refusal = refusal_of(scenario, asked[0])
        if refusal is None:
            requests += asked
        else:
            judgement = Judgement(Outcome.SKIPPED, refusal)
            settled += [Result(scenario.name, request, judgement) for request in asked]
    return requests, settled


def requests_of(scenario: Scenario, options: Options) -> list[RunRequest]:
    """Fault and control of a scenario, as often as asked for; of a healthy one its one job."""
    variants: tuple[Variant, ...] = ("fault", "control") if options.control else ("fault",)
    if scenario.is_healthy:
        variants = ("control",)
    return [
        RunRequest(
            scenario=scenario,
            variant=variant,
            repetition=repetition,
            seed=options.seed + repetition,
            backend=options.backend,
            world_size=options.world_size or scenario.world_size,
            nodes=options.nodes or scenario.nodes,
            launcher=launcher_of(scenario.needs, options.launcher),
            hang_after_s=options.hang_after_s or scenario.hang_after_s,
            deadline_s=options.deadline_s,
        )
        for repetition in range(options.repeat)
        for variant in variants
    ]


def refusal_of(scenario: Scenario, request: RunRequest) -> str | None:
    """The reason that a scenario cannot run here as asked, or None.

    Raises PoolTooSmall where the GPUs that it needs are there, but not for hanglab.
    """
    refusal = refusal_anywhere(scenario, request)
    if refusal:
        return refusal
    for need in _needs(scenario, request):
        found = capabilities.capability(need)
        if not found.available:
            remedy = f"; {found.remedy}" if found.remedy else ""
            return f"needs {need}: {found.reason}{remedy}"
    return Allotment().refusal(scenario, request.backend)


def refusal_anywhere(scenario: Scenario, request: RunRequest) -> str | None:
    """The reason that a scenario can run as asked on no machine, or None."""
    if request.backend not in scenario.backends:
        return f"runs on {' and '.join(scenario.backends)} only"
    refusal = scenario.refuses_world(request.world_size)
    if refusal:
        return refusal
    launcher = LAUNCHERS[request.launcher]
    if backend_of(request.backend).emulated and launcher.own_hosts:
        return f"ranks on {request.backend} share memory, so they need one host; use launcher local"
    lacking = [need for need in scenario.needs if need in launcher.lacks]
    if lacking:
        return f"needs {lacking[0]}: {launcher.reason}; use another launcher"
    on_hosts = [fault for fault in scenario.faults if isinstance(fault, HostFault)]
    if on_hosts and not launcher.own_hosts:
        able = " or ".join(name for name, spec in LAUNCHERS.items() if spec.own_hosts)
        return f"{type(on_hosts[0]).__name__} is done to a rank's own host; use launcher {able}"
    on_device = [fault for fault in scenario.faults if isinstance(fault, DeviceFault)]
    if on_device and not backend_of(request.backend).emulated:
        return f"{type(on_device[0]).__name__} is done to an emulated device; use nccl-emulated"
    return None


def _needs(scenario: Scenario, request: RunRequest) -> list[str]:
    needs = [request.backend, *scenario.needs]
    needs += LAUNCHERS[launcher_of(needs, request.launcher)].needs
    needs += [fault.needs for fault in scenario.faults if fault.needs]
    return list(dict.fromkeys(needs))


def _broken(broken: BrokenFile) -> Result:
    return Result(
        broken.path.stem,
        None,
        Judgement(Outcome.HARNESS_ERROR, f"{broken.path.name}:{broken.line}: {broken.reason}"),
        detail=broken.describe(),
    )


def run_all(
    requests: Sequence[RunRequest],
    folder: RunFolder,
    launchers: Launchers,
    jobs: int,
    stop: threading.Event,
    listener: Listener,
) -> list[Result]:
    """Runs the jobs, ``jobs`` at a time, and gives their results in the order of the requests.

    Once ``stop`` is set the running jobs are ended and the others not begun;
    those have no result.
    """
    allotment = Allotment()

    def one(request: RunRequest) -> Result | None:
        def tell(phase: str) -> None:
            listener.phase(request, phase)

        with allotment.lease(request, stop, tell) as environment:
            if environment is None:
                return None
            result = _run_one(request, folder, launchers, stop, tell, environment)
        listener.result(result)
        return result

    with concurrent.futures.ThreadPoolExecutor(jobs, "job") as pool:
        futures = [pool.submit(one, request) for request in requests]
        try:
            concurrent.futures.wait(futures)
        except BaseException:
            stop.set()
            raise
    return [result for future in futures if (result := future.result()) is not None]


def _run_one(
    request: RunRequest,
    folder: RunFolder,
    launchers: Launchers,
    stop: threading.Event,
    tell: Callable[[str], None],
    environment: Mapping[str, str],
) -> Result:
    name = request.scenario.name
    try:
        here = folder.of(request.backend).job(name, request.variant, request.repetition)
        return run(request, here, launchers[request.launcher], stop, tell, environment)
    except ArtifactsError as failure:
        judgement = Judgement(Outcome.HARNESS_ERROR, str(failure))
        return Result(name, request, judgement, detail=failure.advice)


def write_results(
    folder: RunFolder, options: Options, results: Sequence[Result]
) -> dict[str, object]:
    """Writes the run's ``results.json`` and gives back its content.

    A run on several backends has one in the folder of each, too.
    """
    entries = [to_json(result) for result in results]
    for backend in folder.backends:
        own = [entry for entry in entries if entry["backend"] == backend]
        part = folder.of(backend)
        part.path.mkdir(exist_ok=True)
        write_entries(part, replace(options, backend=backend), own)
    return write_entries(folder, options, entries)


def write_entries(
    folder: RunFolder, options: Options, entries: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """Write results that :func:`to_json` has made."""
    content: dict[str, object] = {
        "schema": SCHEMA,
        "folder": str(folder.path),
        "exit_code": exit_code(Outcome(entry["outcome"]) for entry in entries),
        "backend": options.backend,
        "launcher": options.launcher,
        "seed": options.seed,
        "counts": _counts(entries),
        "results": entries,
    }
    write_json(folder.results, content)
    return content


def _counts(entries: Sequence[Mapping[str, object]]) -> dict[str, dict[str, int]]:
    """Number of jobs by backend and outcome."""
    found: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry["backend"] is not None:
            found.setdefault(str(entry["backend"]), Counter())[str(entry["outcome"])] += 1
    return {backend: dict(counts) for backend, counts in found.items()}


def to_json(result: Result) -> dict[str, object]:
    request = result.request
    return {
        "scenario": result.name,
        "variant": request.variant if request else None,
        "backend": request.backend if request else None,
        "repetition": request.repetition if request else None,
        "seed": request.seed if request else None,
        "world_size": request.world_size if request else None,
        "outcome": result.outcome.value,
        "reason": result.judgement.reason,
        "expected": expectation(request) if request else None,
        "verdict": result.verdict,
        "seconds": round(result.seconds, 3),
        "artifacts": str(result.folder) if result.folder else None,
        "detail": result.detail,
    }


def script_scenario(program: Path, options: Options, arguments: Sequence[str] = ()) -> Scenario:
    """A plain script of which nothing is expected."""
    return Scenario(
        name=program.stem,
        source=program,
        line=1,
        function=None,
        program=program,
        expect=None,
        world_size=options.world_size or 4,
        hang_after_s=options.hang_after_s or SCRIPT_HANG_AFTER_S,
        arguments=tuple(arguments),
    )


__all__ = [
    "Listener",
    "Options",
    "plan",
    "refusal_of",
    "requests_of",
    "run_all",
    "script_scenario",
    "to_json",
    "write_entries",
    "write_results",
]
