"""Plans of runs: the jobs that are asked for, and why some cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hanglab.harness import capabilities
from hanglab.harness.faults.device import DeviceFault
from hanglab.harness.faults.host_fault import HostFault
from hanglab.harness.jobs.outcome import Judgement, Outcome
from hanglab.harness.jobs.resources import Allotment
from hanglab.harness.jobs.run import Result, RunRequest
from hanglab.harness.jobs.run_folder import Variant
from hanglab.harness.jobs.shard import Shard
from hanglab.harness.launchers.selection import DEFAULT_LAUNCHER, LAUNCHERS, launcher_of
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.discovery import BrokenFile, Found
from hanglab.recorder.case.backends import DEFAULT_BACKEND, backend_of

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
    #: The part of the scenarios that runs here; None for all.
    shard: Shard | None = None


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
    if backend_of(request.backend).emulated and launcher.spread:
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
