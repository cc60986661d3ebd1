"""Manifests: a JobSet, Kubeflow's PyTorchJob, and the agent as a DaemonSet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hanglab.harness.kubernetes.names import AGENT, JOB_LABEL
from hanglab.harness.kubernetes.pod_security import Manifest, looks_into_processes, unprivileged
from hanglab.harness.kubernetes.training_pods import (
    TrainingJob,
    agent_container,
    labels_of,
    training_pod,
)

_WORKERS = "workers"
#: Every pod has all ports to itself.
_PORT = 29500
#: By this name the operator finds the container that trains.
_PYTORCH = "pytorch"


@dataclass(frozen=True)
class NodeAgents:
    """An agent on every node that fits; it captures what stops there, and when it is asked."""

    name: str
    namespace: str | None
    image: str
    ptrace: bool
    #: Without ``ptrace``, the user whose ranks it can look at.
    user: int
    node_selector: Mapping[str, str]
    #: URL below which each agent sends its Cases.
    out: str | None = None


def jobset(job: TrainingJob) -> Manifest:
    """A JobSet of one indexed Job; its pods meet at the first one's name."""
    torchrun = [
        "torchrun",
        f"--nnodes={job.nodes}",
        f"--nproc-per-node={job.ranks_per_node}",
        # The Job's controller sets it, and the kubelet puts it in.
        "--node-rank=$(JOB_COMPLETION_INDEX)",
        f"--master-addr={job.name}-{_WORKERS}-0-0.{job.name}",
        f"--master-port={_PORT}",
    ]
    template = {
        "metadata": {"labels": labels_of(job.name)},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": job.nodes,
            "completions": job.nodes,
            "backoffLimit": 0,
            "activeDeadlineSeconds": job.limit_s,
            "template": training_pod(job, "trainer", torchrun),
        },
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(job.name, job.namespace),
        "spec": {
            "network": {"enableDNSHostnames": True},
            # A hang that was restarted is one that nobody can look at any more.
            "failurePolicy": {"maxRestarts": 0},
            "ttlSecondsAfterFinished": job.kept_s,
            "replicatedJobs": [{"name": _WORKERS, "replicas": 1, "template": template}],
        },
    }


def pytorchjob(job: TrainingJob) -> Manifest:
    """A PyTorchJob: the operator tells torchrun its nodes by variables (PET_NNODES and others)."""
    replica = {"restartPolicy": "Never", "template": training_pod(job, _PYTORCH, ["torchrun"])}
    replicas = {"Master": {"replicas": 1, **replica}}
    if job.nodes > 1:
        replicas["Worker"] = {"replicas": job.nodes - 1, **replica}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _metadata(job.name, job.namespace),
        "spec": {
            "nprocPerNode": str(job.ranks_per_node),
            "runPolicy": {
                "activeDeadlineSeconds": job.limit_s,
                "backoffLimit": 0,
                # Pods that run stay when the first of them fails: they are what is captured.
                "cleanPodPolicy": "None",
                "ttlSecondsAfterFinished": job.kept_s,
            },
            "pytorchReplicaSpecs": replicas,
        },
    }


def daemonset(agents: NodeAgents) -> Manifest:
    """The agent on every node; it sees the processes of all of its pods."""
    rights = looks_into_processes(0, None) if agents.ptrace else unprivileged(agents.user)
    labels = {**labels_of(agents.name), "app.kubernetes.io/component": AGENT}
    spec: Manifest = {
        "hostPID": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [agent_container(agents.image, rights, agents.out)],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [
            {"name": "cases", "emptyDir": {"sizeLimit": "4Gi"}},
            {"name": "agent-tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    if agents.node_selector:
        spec["nodeSelector"] = dict(agents.node_selector)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(agents.name, agents.namespace),
        "spec": {
            "selector": {"matchLabels": {JOB_LABEL: agents.name}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pod_specs(manifest: Manifest) -> list[Manifest]:
    """The pods of a manifest made here."""
    spec = manifest["spec"]
    if manifest["kind"] == "JobSet":
        return [one["template"]["spec"]["template"]["spec"] for one in spec["replicatedJobs"]]
    if manifest["kind"] == "PyTorchJob":
        return [one["template"]["spec"] for one in spec["pytorchReplicaSpecs"].values()]
    return [spec["template"]["spec"]]


def _metadata(name: str, namespace: str | None) -> Manifest:
    placed = {"namespace": namespace} if namespace is not None else {}
    return {"name": name, **placed, "labels": labels_of(name)}
