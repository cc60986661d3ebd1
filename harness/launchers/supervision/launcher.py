"""Base of launchers whose jobs run under a supervisor below a root supervisor."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping

from hanglab.harness.launchers import protocol
from hanglab.harness.launchers.environment import RANK_VARIABLES, job_environment
from hanglab.harness.launchers.protocol import JobPlan, SupervisorLost, SupervisorSilent
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.harness.launchers.supervision.client import (
    RootLost,
    RootSupervisorClient,
    new_runtime_dir,
)
from hanglab.harness.launchers.supervision.job import SupervisedJob

Kind = frozenset[tuple[str, str]]


class SupervisedLauncher:
    """Starts jobs through root supervisors of its own; safe to share among threads."""

    name: str

    def __init__(self) -> None:
        self._roots: dict[Kind, RootSupervisorClient] = {}
        self._lock = threading.Lock()

    def command(self) -> list[str]:
        """The root supervisor's program, to which the control socket's number is added."""
        raise NotImplementedError

    def kind_of(self, environment: Mapping[str, str]) -> Kind:
        """Environments of different kinds need different root supervisors."""
        return frozenset()

    def order(self, plan: JobPlan, environment: dict[str, str]) -> Message:
        """Entries of the order to the supervisor besides those that all have."""
        raise NotImplementedError

    def prepare(self, environment: Mapping[str, str] | None = None) -> None:
        """Starts the root supervisor in the background, so that a later start need not wait for it.

        ``environment`` is what the plan will add to that of this process.
        """
        self._root({**os.environ, **(environment or {})})

    def start(self, plan: JobPlan) -> SupervisedJob:
        plan.log_dir.mkdir(parents=True, exist_ok=True)
        try:
            return self._start(plan)
        except (RootLost, SupervisorLost):
            # A root supervisor that died while it was idle costs one more start, not the job.
            return self._start(plan)

    def _start(self, plan: JobPlan) -> SupervisedJob:
        runtime_dir = new_runtime_dir()
        environment = job_environment(plan, os.environ, runtime_dir)
        order = {
            "world_size": plan.world_size,
            "environment": environment,
            "folder": os.getcwd(),
            "log_dir": os.path.abspath(plan.log_dir),
            "runtime_dir": str(runtime_dir),
            "limit_s": plan.deadline_s + protocol.GRACE_S,
            **self.order(plan, environment),
        }
        root = self._root(environment)
        job = SupervisedJob(plan, runtime_dir, root.adopt(runtime_dir))
        try:
            job.begin(order)
        except SupervisorSilent:
            # Jobs that it has handed to supervisors go on without it.
            root.kill()
            job.end()
            raise
        except BaseException:  # Ctrl-C, too: nobody else could end the job
            job.end()
            raise
        return job

    def _root(self, environment: Mapping[str, str]) -> RootSupervisorClient:
        kind = self.kind_of(environment)
        with self._lock:
            root = self._roots.get(kind)
            if root is not None and root.alive():
                return root
            if root is not None:
                root.close()
            own = {k: v for k, v in environment.items() if k not in RANK_VARIABLES}
            # That of the job is gone before the root supervisor is.
            own["TMPDIR"] = tempfile.gettempdir()
            root = self._roots[kind] = RootSupervisorClient(self.command(), own)
            return root

    def close(self) -> None:
        """Ends every job of this launcher, and its root supervisors; waits for that."""
        with self._lock:
            guards = list(self._roots.values())
            self._roots.clear()
        for root in guards:
            root.close()
