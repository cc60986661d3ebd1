"""Running planned jobs side by side."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hanglab.harness.errors import HanglabError
from hanglab.harness.jobs.outcome import Judgement, Outcome
from hanglab.harness.jobs.resources import Allotment
from hanglab.harness.jobs.run import Result, RunRequest, run
from hanglab.harness.jobs.run_folder import ArtifactsError, RunFolder
from hanglab.harness.launchers.selection import Launchers


class RunFailed(HanglabError):
    """A job came to no verdict, for a reason that is not in it."""

    advice = "`hanglab doctor` shows what this machine can run."


class Listener(Protocol):
    """Hears how a run gets on; called from several threads."""

    def phase(self, request: RunRequest, phase: str) -> None: ...

    def result(self, result: Result) -> None: ...


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
