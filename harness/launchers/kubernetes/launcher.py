"""Starts jobs whose nodes are pods, each pod of one job alone."""

from __future__ import annotations

import threading

from hanglab.harness.kubernetes.connection import KubernetesCluster, connect
from hanglab.harness.launchers.kubernetes.errors import launching
from hanglab.harness.launchers.kubernetes.job import KubernetesJob
from hanglab.harness.launchers.nodes.running_jobs import RunningJobs
from hanglab.harness.launchers.protocol import JobPlan


class KubernetesLauncher:
    """Safe to share among threads.  Needs a cluster, by kubectl's configuration or a pod's."""

    name = "kubernetes"

    def __init__(self) -> None:
        self._cluster: KubernetesCluster | None = None
        self._lock = threading.Lock()
        self._jobs = RunningJobs[KubernetesJob]()

    def prepare(self) -> None:
        """Nothing is kept warm: pods cost others their place."""

    def start(self, plan: JobPlan) -> KubernetesJob:
        with self._lock, launching():
            self._cluster = self._cluster or connect()
        job = KubernetesJob(plan, self._cluster)
        return self._jobs.start(job, job.begin)

    def close(self) -> None:
        self._jobs.end()
