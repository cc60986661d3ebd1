"""Running jobs for items: launchers that stay warm, leases, the run's folder, Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import pytest

from hanglab.harness.errors import HanglabError
from hanglab.harness.jobs.outcome import Judgement, Outcome
from hanglab.harness.jobs.resources import Allotment
from hanglab.harness.jobs.run import Result, RunRequest, run
from hanglab.harness.jobs.run_folder import RunFolder
from hanglab.harness.launchers.selection import make_launcher
from hanglab.harness.pytest_plugin import workers
from hanglab.harness.pytest_plugin.lease_waits import LeaseWait

if TYPE_CHECKING:
    from types import FrameType

    from hanglab.harness.launchers.protocol import Launcher


class Runner:
    """Runs the jobs of all items of one process; ``several`` if in more than one combination."""

    def __init__(self, config: pytest.Config, *, several: bool) -> None:
        self._config = config
        self._several = several
        self._launchers: dict[str, Launcher] = {}
        self._begun = False
        #: The job that Ctrl-C cut short, as far as it came.
        self.cut_short: Result | None = None
        self.folder = RunFolder(workers.run_folder(config))
        self.allotment = Allotment()

    def prepare(self, launchers: Collection[str]) -> None:
        """Begins to import torch, so that the first item waits for less."""
        for name in launchers:
            self._launcher(name).prepare()

    def run(self, request: RunRequest) -> tuple[Result, list[str]]:
        """Runs one job, and says for what it had to wait.

        Raises KeyboardInterrupt where Ctrl-C came; the job is over and its Case
        written then, and ``cut_short`` has it.  A second Ctrl-C interrupts at once.
        """

        def announce(reason: str) -> None:
            self._announce(f"{request.title}: {reason}")

        def interrupted() -> None:
            announce(
                "interrupted; it is captured and ended first, which takes some seconds.  "
                "Ctrl-C once more does not wait."
            )

        with (
            _stopping(interrupted) as stop,
            LeaseWait(announce) as wait,
            self.allotment.lease(request, stop, wait.tell) as environment,
        ):
            wait.end()
            if environment is None:
                raise KeyboardInterrupt
            try:
                self._begin()
                folder = self._folder(request).job(
                    request.scenario.name, request.variant, request.repetition
                )
                launcher = self._launcher(request.launcher)
                result = run(request, folder, launcher, stop, environment=environment)
            except HanglabError as failure:
                judgement = Judgement(Outcome.HARNESS_ERROR, str(failure))
                result = Result(request.scenario.name, request, judgement, detail=failure.advice)
            if stop.is_set():
                self.cut_short = result
                raise KeyboardInterrupt
        return result, wait.reasons

    def _begin(self) -> None:
        """No run without a job has a folder.  Raises ArtifactsError."""
        if not self._begun:
            self.folder.begin()
            self._begun = True

    def _folder(self, request: RunRequest) -> RunFolder:
        return self.part(request.backend, request.launcher, str(request.world_size))

    def part(self, backend: str, launcher: str, world_size: str) -> RunFolder:
        """Folder of one combination, laid out as by `hanglab run`, which knows one only."""
        if not self._several:
            return self.folder
        path = self.folder.path / f"{backend}-{launcher}-{world_size}"
        return RunFolder(path, began=self.folder.began)

    def _launcher(self, name: str) -> Launcher:
        if name not in self._launchers:
            self._launchers[name] = make_launcher(name)
        return self._launchers[name]

    def _announce(self, text: str) -> None:
        """Past pytest's capture; from workers, too, whose standard error is the terminal's."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        shown = capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
        worker = workers.worker_name(self._config)
        with shown:
            print(f"\nhanglab: {worker + ' ' if worker else ''}{text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends what is kept warm, and every job."""
        while self._launchers:
            self._launchers.popitem()[1].close()


@contextlib.contextmanager
def _stopping(interrupted: Callable[[], None]) -> Iterator[threading.Event]:
    """Turns the first Ctrl-C into an event, so that a job is captured and ended in order.

    ``interrupted`` is called then.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        # A line that was just being written would refuse another one in its middle.
        with contextlib.suppress(RuntimeError, OSError):
            interrupted()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
