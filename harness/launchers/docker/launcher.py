"""Starts jobs whose nodes are containers of one image, each job in a network of its own."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from hanglab.harness.launchers.docker import errors
from hanglab.harness.launchers.docker.connection import connect
from hanglab.harness.launchers.docker.containers import (
    new_label,
    settings_of,
    user_of_containers,
)
from hanglab.harness.launchers.docker.image import find_image, image_name
from hanglab.harness.launchers.docker.job import ContainerJob
from hanglab.harness.launchers.docker.reaping import reap
from hanglab.harness.launchers.nodes.placement import placed
from hanglab.harness.launchers.nodes.running_jobs import RunningJobs
from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.supervision.client import new_runtime_dir

if TYPE_CHECKING:
    from docker import DockerClient

#: A name that is taken is chosen anew so often.
_TRIES = 3


class DockerLauncher:
    """Safe to share among threads.  Needs the extra ``docker`` and a daemon on this machine."""

    name = "docker"

    def __init__(self) -> None:
        self._client: DockerClient | None = None
        self._image: str | None = None
        self._jobs = RunningJobs[ContainerJob]()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Nothing is kept warm: ranks in containers start cold."""

    def start(self, plan: JobPlan) -> ContainerJob:
        try:
            return self._start(plan)
        except OSError as error:  # of the run's folder, or of the temporary one
            raise errors.unusable("Starting a job", error) from error

    def _start(self, plan: JobPlan) -> ContainerJob:
        client, image_id = self._connected()
        for tries in range(_TRIES):
            job = self._new_job(client, plan)
            try:
                return self._jobs.start(job, partial(job.begin, image_id))
            except errors.ContainerNameTaken:
                if tries == _TRIES - 1:
                    raise
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        try:
            self._jobs.end()
        finally:
            if self._client is not None:
                self._client.close()

    def _connected(self) -> tuple[DockerClient, str]:
        """The daemon, which holds nothing of dead jobs any more, and the image."""
        with self._lock:
            if self._client is None or self._image is None:
                self._client = self._client or connect()
                reap(self._client)
                self._image = find_image(self._client, image_name())
            return self._client, self._image

    def _new_job(self, client: DockerClient, plan: JobPlan) -> ContainerJob:
        ranks = placed(plan.world_size, plan.nodes)
        settings = []
        try:
            for number, block in enumerate(ranks):
                settings.append(settings_of(plan, number, block, len(ranks)))
        except BaseException:
            for made in settings:
                made.closing.close()
            raise
        label = new_label(plan)
        return ContainerJob(client, plan, label, new_runtime_dir(), settings, user_of_containers())
