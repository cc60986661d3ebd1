"""The pods of a job, and what the cluster says of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hanglab.harness.kubernetes.connection import TIMEOUT, KubernetesCluster
from hanglab.harness.kubernetes.errors import NoSuchJob, explained
from hanglab.harness.kubernetes.names import AGENT, JOB_LABEL
from hanglab.recorder.case.records import PodEnding, PodRecord
from hanglab.recorder.case.writer import clock

#: Labels by which JobSets, training operators and Jobs mark their pods.
_LABELS = (
    JOB_LABEL,
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
#: Of those that a DaemonSet of hanglab's makes.
_AGENTS = f"app.kubernetes.io/managed-by=hanglab,app.kubernetes.io/component={AGENT}"
#: What pods' reasons, and those of their conditions, say of how they ended.
_REASONS: dict[str, PodEnding] = {
    "Evicted": "evicted",
    "Preempting": "preempted",
    "PreemptionByScheduler": "preempted",
    "TerminationByKubelet": "evicted",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByTaintManager": "node_lost",
    "DeletionByPodGC": "node_lost",
    "NodeLost": "node_lost",
    "NodeShutdown": "node_lost",
    "Terminated": "node_lost",
    "DeadlineExceeded": "deadline",
    "OOMKilled": "oom_killed",
}
WORDS: dict[PodEnding, str] = {
    "oom_killed": "was killed by the kernel at its limit of memory",
    "evicted": "was evicted from its node",
    "preempted": "was preempted for another of a higher priority",
    "node_lost": "was on a node that the cluster has lost",
    "deadline": "was ended at its job's time limit",
    "failed": "has failed",
    "succeeded": "is over",
}


@dataclass(frozen=True)
class JobPod:
    """A pod of a job.  ``container`` is the one to run a capture in."""

    name: str
    uid: str
    node: str
    container: str
    #: True where hanglab has a container of its own in it.
    agent: bool
    recorded: bool
    record: PodRecord

    @property
    def running(self) -> bool:
        return self.record.phase == "Running" and not self.record.ending


def pods_of(cluster: KubernetesCluster, job: str) -> list[JobPod]:
    """Pods by name.  Raises NoSuchJob and others of KubernetesError."""
    core = cluster.core()
    doing = f"Listing the pods of {job} in namespace {cluster.namespace}"
    with explained(doing):
        for label in _LABELS:
            found = core.list_namespaced_pod(
                cluster.namespace, label_selector=f"{label}={job}", _request_timeout=TIMEOUT
            ).items
            if found:
                return sorted((_pod(one) for one in found), key=lambda pod: pod.name)
    raise NoSuchJob(f"No pod of a job {job} is in namespace {cluster.namespace}.")


def agents_by_node(cluster: KubernetesCluster) -> dict[str, JobPod]:
    """Running agents of a DaemonSet, in any namespace that may be looked at."""
    from kubernetes.client.exceptions import ApiException

    core = cluster.core()
    with explained("Looking for agents on nodes"):
        try:
            found = core.list_namespaced_pod(
                cluster.namespace, label_selector=_AGENTS, _request_timeout=TIMEOUT
            ).items
        except ApiException as error:
            if error.status != 403:
                raise
            return {}
    return {pod.node: pod for pod in map(_pod, found) if pod.running}


def record_of(pod: Any) -> PodRecord:
    """A pod's state as evidence."""
    status = pod.status
    ended = [
        state.terminated
        for one in status.container_statuses or ()
        for state in (one.state, one.last_state)
        if state is not None and state.terminated is not None
    ]
    reasons = [status.reason or ""]
    # Says of a pod that is about to be taken away why that is, before it has ended.
    reasons += [
        one.reason or ""
        for one in status.conditions or ()
        if one.type == "DisruptionTarget" and one.status == "True"
    ]
    reasons += [one.reason or "" for one in ended]
    ending = next((_REASONS[reason] for reason in reasons if reason in _REASONS), None)
    if ending is None and status.phase in ("Failed", "Succeeded"):
        ending = "failed" if status.phase == "Failed" else "succeeded"
    return PodRecord(
        at=clock(),
        name=pod.metadata.name,
        namespace=pod.metadata.namespace or "",
        node=pod.spec.node_name or "",
        phase=status.phase or "",
        ending=ending,
        message=status.message or "",
        exit_code=next((one.exit_code for one in ended if one.exit_code), None),
        restarts=sum(one.restart_count for one in status.container_statuses or ()),
    )


def _pod(pod: Any) -> JobPod:
    containers = [*(pod.spec.init_containers or ()), *pod.spec.containers]
    own = next((one for one in containers if one.name == AGENT), None)
    first = pod.spec.containers[0]
    words: list[str] = first.command or []
    return JobPod(
        pod.metadata.name,
        pod.metadata.uid or "",
        pod.spec.node_name or "",
        (own or first).name,
        own is not None,
        bool(words) and words[0].rpartition("/")[2] == "hanglab",
        record_of(pod),
    )
