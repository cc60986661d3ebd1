"""The launcher that forks ranks off a process in which torch is already imported."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from hanglab.harness.launchers.channel import Message
from hanglab.harness.launchers.environment import RANK_VARIABLES, job_environment, settled_early
from hanglab.harness.launchers.guard import Guard, GuardianFailed, new_runtime_dir, warm_command
from hanglab.harness.launchers.protocol import Plan, RunningJob, SupervisorLost
from hanglab.harness.launchers.supervised import SupervisedJob


class LocalLauncher:
    """Ranks on this host, through their first collective in a fraction of a second.

    Safe to share among threads.  What an interpreter or torch reads only once
    (PYTHONHASHSEED, LD_PRELOAD, TORCH_LOGS ...) is respected by keeping one warm
    process for each set of such variables.  The ranks of one job share one hash
    seed, which ranks of torchrun do not.
    """

    name = "local"

    def __init__(self) -> None:
        self._guards: dict[frozenset[tuple[str, str]], Guard] = {}
        self._jobs: set[SupervisedJob] = set()
        self._lock = threading.Lock()

    def prepare(self, environment: Mapping[str, str] | None = None) -> None:
        """Begins to import torch in the background, so that a later start need not wait.

        ``environment`` is what the plan will add to that of this process.
        """
        self._guard({**os.environ, **(environment or {})})

    def start(self, plan: Plan) -> RunningJob:
        runtime_dir = new_runtime_dir()
        environment = job_environment(plan, os.environ, runtime_dir)
        order: Message = {
            "script": os.path.abspath(plan.script),
            "function": plan.function,
            "arguments": list(plan.arguments),
            "world_size": plan.world_size,
            "environment": environment,
            "folder": os.getcwd(),
            "log_dir": os.path.abspath(plan.log_dir),
            "runtime_dir": str(runtime_dir),
            "deadline_s": plan.deadline_s,
        }
        plan.log_dir.mkdir(parents=True, exist_ok=True)
        for attempt in (1, 2):
            guard = self._guard(environment)
            try:
                job = SupervisedJob(plan, runtime_dir, guard.adopt(runtime_dir))
                job.begin(order)
            except (GuardianFailed, SupervisorLost):
                # A warm process that died while idle costs one more start, not the job.
                if attempt == 2 or guard.alive():
                    raise
            else:
                self._jobs.add(job)
                return job
        raise AssertionError("unreachable")

    def _guard(self, environment: Mapping[str, str]) -> Guard:
        key = settled_early(environment)
        with self._lock:
            guard = self._guards.get(key)
            if guard is None or not guard.alive():
                if guard is not None:
                    guard.close()
                own = {k: v for k, v in environment.items() if k not in RANK_VARIABLES}
                guard = self._guards[key] = Guard(warm_command(), own)
            return guard

    def close(self) -> None:
        for job in list(self._jobs):
            job.end()
        self._jobs.clear()
        with self._lock:
            for guard in self._guards.values():
                guard.close()
            self._guards.clear()
