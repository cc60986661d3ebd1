"""Pods that are a job's nodes: made, waited for, and removed."""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import suppress
from typing import Any, Final

from hanglab.harness.kubernetes.connection import TIMEOUT, KubernetesCluster
from hanglab.harness.kubernetes.errors import explained
from hanglab.harness.kubernetes.names import CASES, JOB_LABEL
from hanglab.harness.kubernetes.pod_security import Manifest, unprivileged
from hanglab.harness.launchers import owners
from hanglab.harness.launchers.docker.image import image_name
from hanglab.harness.launchers.kubernetes.errors import PodsNotStarted
from hanglab.recorder.case.backends import backend_of

#: The one container of a node.
CONTAINER: Final = "node"
#: Seconds that pods may wait for nodes of the cluster; they are none of the job's own time.
WAIT: Final = "HANGLAB_KUBERNETES_WAIT"
_WAIT_S = 600.0
_LOOK_S = 0.5
#: For nodes to start their ranks, and for Cases to be fetched, besides the job's own time.
_MORE_S = 420.0
_MANAGED = {"app.kubernetes.io/managed-by": "hanglab", "app.kubernetes.io/component": CONTAINER}
#: Of the image's user.
_USER = 1000
#: Where the node's process says which one it is, as long as it is there.
NODE_FILE: Final = f"{CASES}/node"
#: Seconds without that process after which a pod ends: hanglab has gone before it came in.
_ALONE_S = 180
#: The pod's first process.  Asked to end it hands that on, so that the job can be captured.
_KEEPER = f"""\
node() {{ kill "$1" "$(cat {NODE_FILE} 2> /dev/null)" 2> /dev/null; }}
trap 'node -TERM || exit 0' TERM
left={_ALONE_S}
while node -0 || [ "$left" -gt 0 ]; do
    if node -0; then left=0; else left=$((left - 1)); fi
    sleep 1 & wait $!
done
"""
#: Reasons for which a container will not start, however long anybody waits.
_FINAL = frozenset(
    {
        "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull",
        "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RunContainerError",
    }
)  # fmt: skip


def manifest(name: str, job: str, ranks: int, backend: str, limit_s: float, run: str) -> Manifest:
    """A pod for so many ranks, which ends by itself after ``limit_s`` seconds."""
    resources: dict[str, dict[str, str]] = {
        "requests": {"cpu": f"{250 * ranks}m", "memory": f"{512 * ranks}Mi"}
    }
    if backend_of(backend).needs_gpu:
        resources["limits"] = {"nvidia.com/gpu": str(ranks)}
    volumes = {CASES: "hanglab", "/tmp": "tmp", "/dev/shm": "shm"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**_MANAGED, JOB_LABEL: job},
            "annotations": {owners.OWNER: owners.identity(os.getpid()), owners.RUN: run},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": math.ceil(limit_s + _MORE_S),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"fsGroup": _USER},
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image_name(),
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", _KEEPER],
                    "env": [{"name": "HOME", "value": "/tmp"}],
                    "resources": resources,
                    "securityContext": unprivileged(_USER),
                    "volumeMounts": [
                        {"name": volume, "mountPath": path} for path, volume in volumes.items()
                    ],
                }
            ],
            "volumes": [
                {"name": "hanglab", "emptyDir": {"sizeLimit": "4Gi"}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "8Gi"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            ],
        },
    }


def create(cluster: KubernetesCluster, pod: Manifest) -> None:
    with explained(f"Making pod {pod['metadata']['name']} in namespace {cluster.namespace}"):
        cluster.core().create_namespaced_pod(cluster.namespace, pod, _request_timeout=TIMEOUT)


def find(cluster: KubernetesCluster, job: str) -> dict[str, Any]:
    """The pods of a job, by name, as the API has them."""
    with explained(f"Looking for the pods of {job} in namespace {cluster.namespace}"):
        found = cluster.core().list_namespaced_pod(
            cluster.namespace, label_selector=f"{JOB_LABEL}={job}", _request_timeout=TIMEOUT
        )
    return {pod.metadata.name: pod for pod in found.items}


def await_running(
    cluster: KubernetesCluster, job: str, count: int, stop: threading.Event | None
) -> dict[str, Any]:
    """The pods by name, once all of them run.  Raises PodsNotStarted, KubernetesError."""
    limit_s = _limit_s()
    until = time.monotonic() + limit_s
    while True:
        pods = find(cluster, job)
        waiting = {name: pod for name, pod in pods.items() if pod.status.phase == "Pending"}
        for name, pod in pods.items():
            if (reason := _why_never(pod)) is not None:
                raise PodsNotStarted(f"Pod {name} does not start: {reason}.")
        if len(pods) == count and not waiting and all(pod.status.pod_ip for pod in pods.values()):
            return pods
        if time.monotonic() > until:
            reasons = sorted({_why_waiting(pod) for pod in waiting.values()})
            why = "; ".join(reasons) or "the cluster does not say why"
            raise PodsNotStarted(
                f"{len(waiting)} of {count} pods were not started within {limit_s:g} s: {why}."
            )
        if stop is not None and stop.is_set():
            raise PodsNotStarted("hanglab was interrupted while its pods waited.")
        time.sleep(_LOOK_S)


def _why_never(pod: Any) -> str | None:
    if pod.status.phase in ("Failed", "Succeeded"):
        return pod.status.message or pod.status.reason or "it has ended already"
    for one in pod.status.container_statuses or ():
        waiting = one.state.waiting if one.state is not None else None
        if waiting is not None and waiting.reason in _FINAL:
            return f"{waiting.reason}, {(waiting.message or '').strip().rstrip('.')}"
    return None


def _why_waiting(pod: Any) -> str:
    for one in pod.status.conditions or ():
        if one.type == "PodScheduled" and one.status == "False":
            return str(one.message or one.reason).rstrip(".")
    return "it is being started"


def remove(cluster: KubernetesCluster, name: str) -> None:
    """Nothing where it is gone.  Raises KubernetesError."""
    from kubernetes.client.exceptions import ApiException

    with explained(f"Removing pod {name}"):
        try:
            cluster.core().delete_namespaced_pod(
                name, cluster.namespace, grace_period_seconds=1, _request_timeout=TIMEOUT
            )
        except ApiException as error:
            if error.status != 404:
                raise


def left_pods(cluster: KubernetesCluster, everything: bool) -> list[str]:
    """Names of pods whose hanglab has ended; ``everything``: of any hanglab."""
    selector = ",".join(f"{name}={value}" for name, value in _MANAGED.items())
    with explained(f"Looking for pods of hanglab's in namespace {cluster.namespace}"):
        found = cluster.core().list_namespaced_pod(
            cluster.namespace, label_selector=selector, _request_timeout=TIMEOUT
        )
    return [
        pod.metadata.name
        for pod in found.items
        if everything or owners.is_dead(pod.metadata.annotations or {})
    ]


def _limit_s() -> float:
    with suppress(KeyError, ValueError):
        return float(os.environ[WAIT])
    return _WAIT_S
