"""One job from its plan to its outcome: start, fault, capture, end, verdict, judgement."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hanglab.analyzer.verdict import Verdict
from hanglab.harness.errors import HanglabError
from hanglab.harness.faults.host_fault import strikes_in
from hanglab.harness.faults.injection import Injector, Strike
from hanglab.harness.jobs.end import Ending, first_error, raised_elsewhere
from hanglab.harness.jobs.outcome import Facts, Judgement, Outcome, expected_location, judge
from hanglab.harness.jobs.run_folder import JobFolder, Variant, write_json
from hanglab.harness.launchers.protocol import (
    JobPlan,
    Launcher,
    LaunchError,
    Recording,
    RunningJob,
)
from hanglab.harness.launchers.selection import DEFAULT_LAUNCHER
from hanglab.harness.scenarios.declaration import Expect, Scenario

#: Pause between two looks at the agent and the ranks, in seconds.
PACE_S = 0.02
#: The same while a fault waits for its moment: a step of a small model takes milliseconds.
FAULT_PACE_S = 0.002
#: How long a capture that was asked for may take, in seconds.
CAPTURE_S = 20.0


@dataclass(frozen=True, eq=False)
class RunRequest:
    """One job to run and to judge.  Each is itself alone, also as a key."""

    scenario: Scenario
    variant: Variant
    repetition: int
    seed: int
    backend: str
    world_size: int
    hang_after_s: float
    deadline_s: float
    #: Containers to spread the ranks over; None leaves it to the launcher.
    nodes: int | None = None
    #: Name of the launcher that starts it.
    launcher: str = DEFAULT_LAUNCHER

    @property
    def title(self) -> str:
        return f"{self.scenario.name} {self.variant} {self.repetition}"


@dataclass
class Result:
    """Result of a request.  ``verdict`` and ``folder`` are None where it got no further."""

    #: Name of the scenario.
    name: str
    #: None for a file that declares nothing that can be run.
    request: RunRequest | None
    judgement: Judgement
    verdict: Verdict | None = None
    folder: Path | None = None
    seconds: float = 0.0
    #: More than one line on what went wrong, such as a traceback.
    detail: str = ""

    @property
    def outcome(self) -> Outcome:
        return self.judgement.outcome


def run(
    request: RunRequest,
    folder: JobFolder,
    launcher: Launcher,
    stop: threading.Event,
    tell: Callable[[str], None] = lambda phase: None,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Runs a job and judges it.  ``tell`` hears of each phase.

    ``environment`` says which parts of the machine the job may use.

    Never raises for what happens to the job: an error of hanglab, of the
    launcher or of the analyzer is an outcome.  Artifacts are written whatever
    happens; raises ArtifactsError where that is not possible.
    """
    name = request.scenario.name
    started = time.time_ns()
    begun = time.monotonic()
    ending = Ending()
    verdict: Verdict | None = None
    try:
        _watch(request, folder, launcher, stop, tell, ending, environment or {})
        if ending.interrupted:
            result = Result(name, request, Judgement(Outcome.HARNESS_ERROR, "interrupted"))
        else:
            tell("analyzing")
            verdict = _analyze(folder.case)
            result = Result(name, request, _judge(request, folder, verdict, ending), verdict)
            if result.outcome is Outcome.HARNESS_ERROR:
                result.detail = first_error(folder.case, ending)
    except Exception as failure:  # whatever it is, it is this job's outcome
        detail = _explain(failure)
        with contextlib.suppress(OSError):
            folder.harness_log.write_text(detail)
        reason = f"{type(failure).__name__}: {failure}"
        if isinstance(failure, HanglabError):
            # Said on purpose: the way to it is in the log.
            reason, detail = str(failure), failure.advice
        result = Result(name, request, Judgement(Outcome.HARNESS_ERROR, reason), detail=detail)
    result.folder = folder.path
    result.seconds = time.monotonic() - begun
    write_json(folder.truth, _truth(request, launcher.name, ending, started, result))
    if verdict is not None:
        write_json(folder.verdict, verdict)
    return result


def _watch(
    request: RunRequest,
    folder: JobFolder,
    launcher: Launcher,
    stop: threading.Event,
    tell: Callable[[str], None],
    ending: Ending,
    environment: Mapping[str, str],
) -> None:
    """Runs the job to its end and leaves its Case."""
    faulty = request.variant == "fault"
    faults = [fault for fault in request.scenario.faults if strikes_in(fault, faulty)]
    injector = Injector(faults, folder.case, request.world_size)
    ending.strikes = injector.strikes
    tell("starting")
    try:
        job = launcher.start(_plan(request, folder, environment, injector, stop))
    except LaunchError:
        ending.interrupted = stop.is_set()
        if ending.interrupted:
            return
        raise
    # From here on: how long a job waits for its turn is none of its own time.
    deadline = time.monotonic() + request.deadline_s
    try:
        agent = job.record(request.hang_after_s)
        with contextlib.closing(injector), contextlib.closing(agent):
            tell("running")
            _until_captured(request, job, agent, injector, stop, deadline, ending)
            _take_exits(job, agent, ending, 0.0)
            tell("ending")
            job.end()
            _take_last_exits(job, agent, ending)
            agent.finish(ended_by_recorder=len(ending.exits) < request.world_size)
            ending.trigger = agent.captured
    finally:
        job.end()


def _until_captured(
    request: RunRequest,
    job: RunningJob,
    agent: Recording,
    injector: Injector,
    stop: threading.Event,
    deadline: float,
    ending: Ending,
) -> None:
    """Returns when every rank has ended, or when the capture is done."""
    while True:
        _take_exits(job, agent, ending, FAULT_PACE_S if injector.pending else PACE_S)
        if len(ending.exits) >= request.world_size or agent.poll():
            return
        if stop.is_set():
            ending.interrupted = True
            agent.capture("interrupt", "hanglab was interrupted")
            agent.wait_captured(CAPTURE_S)
            return
        if time.monotonic() > deadline:
            agent.capture("deadline", f"the job's {request.deadline_s:g} s were over")
            agent.wait_captured(CAPTURE_S)
            return
        ended = {gone.rank for gone in ending.exits}
        pids = {**agent.pids, **job.pids}
        living = {rank: pid for rank, pid in pids.items() if rank not in ended}
        if not job.injects:
            injector.poll(living, job.hosts)


def _take_exits(job: RunningJob, agent: Recording, ending: Ending, timeout: float) -> None:
    for gone in job.events(timeout):
        ending.exits.append(gone)
        agent.exited(gone.rank, gone.code, gone.signal, gone.stderr, by_recorder=False)


def _take_last_exits(job: RunningJob, agent: Recording, ending: Ending) -> None:
    """Takes in the exits that were reported only now, though the agent may have seen them."""
    for gone in job.events(0.0):
        if not gone.by_launcher:
            ending.exits.append(gone)
        agent.exited(gone.rank, gone.code, gone.signal, gone.stderr, by_recorder=gone.by_launcher)


def _plan(
    request: RunRequest,
    folder: JobFolder,
    environment: Mapping[str, str],
    injector: Injector,
    stop: threading.Event,
) -> JobPlan:
    scenario = request.scenario
    faulty = request.variant == "fault"
    program = scenario.program
    if not faulty and scenario.control_program is not None:
        program = scenario.control_program
    return JobPlan(
        run_dir=folder.path,
        case_dir=folder.case,
        script=program,
        function=scenario.function,
        world_size=request.world_size,
        faulty=faulty,
        seed=request.seed,
        backend=request.backend,
        deadline_s=request.deadline_s,
        environment={
            **environment,
            "HANGLAB_SEED": str(request.seed),
            "HANGLAB_BACKEND": request.backend,
        },
        nodes=request.nodes,
        faults=scenario.faults,
        begun=injector.begin,
        over=injector.end,
        struck=injector.told,
        stop=stop,
        arguments=scenario.arguments,
    )


def _analyze(case: Path) -> Verdict:
    from hanglab.analyzer.engine import analyze

    verdict: Verdict = analyze(case)
    return verdict


def _judge(request: RunRequest, folder: JobFolder, verdict: Verdict, ending: Ending) -> Judgement:
    if request.scenario.expect is None:
        return Judgement(Outcome.PASS)
    failed = tuple(ended.rank for ended in ending.failed)
    facts = Facts(
        failed=failed,
        finished=not failed and len(ending.exits) >= request.world_size,
        missed=tuple(strike.describe() for strike in ending.strikes if not strike.struck),
        remaining=tuple(strike.remains for strike in ending.strikes if strike.remains),
        raised=raised_elsewhere(request.scenario, folder.case, ending),
    )
    return judge(
        request.scenario,
        request.variant,
        request.backend,
        request.world_size,
        verdict,
        facts,
    )


def _explain(failure: Exception) -> str:
    text = "".join(traceback.format_exception(failure))
    if isinstance(failure, HanglabError) and failure.advice:
        text += f"\n{failure.advice}\n"
    return text


def _truth(
    request: RunRequest, launcher: str, ending: Ending, started: int, result: Result
) -> dict[str, object]:
    """Content of ``truth.json``: what was done, when and where, and what was expected of it."""
    scenario = request.scenario
    return {
        "scenario": scenario.name,
        "variant": request.variant,
        "repetition": request.repetition,
        "seed": request.seed,
        "backend": request.backend,
        "launcher": launcher,
        "world_size": request.world_size,
        "source": str(scenario.source),
        "program": str(scenario.program),
        "fault_lines": scenario.fault_lines,
        "expected": expectation(request),
        "faults": [_strike(strike) for strike in ending.strikes],
        "started_ns": started,
        "seconds": result.seconds,
        "trigger": ending.trigger,
        "exits": [
            {"rank": gone.rank, "code": gone.code, "signal": gone.signal} for gone in ending.exits
        ],
        "outcome": result.outcome.value,
        "reason": result.judgement.reason,
    }


def expectation(request: RunRequest) -> dict[str, object] | None:
    """Expectation of a request's verdict, as JSON; None where nothing is expected."""
    expect = request.scenario.expect
    if expect is None:
        return None
    if request.variant == "control":
        return {"status": "healthy"}
    return {
        **_cause(expect, request),
        "group": expect.group,
        "location": expected_location(request.scenario),
        "also": [_cause(further, request) for further in expect.also],
    }


def _cause(expect: Expect, request: RunRequest) -> dict[str, object]:
    return {
        "status": expect.status_on(request.backend).value,
        "cause": expect.cause.value if expect.cause else None,
        "culprits": expect.culprits_of(request.world_size),
    }


def _strike(strike: Strike) -> dict[str, object]:
    return {
        "kind": type(strike.fault).__name__.lower(),
        "rank": strike.fault.rank,
        "when": strike.fault.condition.describe(),
        "struck_ns": strike.at_ns,
        "ended_ns": strike.ended_ns,
        "proof": strike.proof.as_json() if strike.proof else None,
        "end_proof": strike.end_proof.as_json() if strike.end_proof else None,
        "pid": strike.pid,
        "step": strike.step,
        "operations": strike.operations,
        "failure": strike.failure or None,
    }


__all__ = ["Result", "RunRequest", "expectation", "run"]
