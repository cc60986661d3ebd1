"""The pods of a training job, with the recorder in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hanglab.harness.kubernetes.names import AGENT, CASE, CASES, JOB_LABEL, STATE, WATCHED
from hanglab.harness.kubernetes.pod_security import Manifest, looks_into_processes, unprivileged

#: ``record``: the command runs under ``hanglab record``; ``sidecar``: a container of its own.
Recorder = Literal["record", "sidecar", "none"]

#: Of a container in which hanglab alone runs: a capture takes a core for seconds.
_AGENT_RESOURCES = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
_CASES_LIMIT = "4Gi"
_TEMPORARY_LIMIT = "8Gi"
_POD = "HANGLAB_POD"


@dataclass(frozen=True)
class TrainingJob:
    """A job to be told to a cluster; amounts are those of one pod."""

    name: str
    namespace: str | None
    image: str
    #: What torchrun runs, with its arguments.
    program: Sequence[str]
    nodes: int
    ranks_per_node: int
    gpus: int
    cpus: str
    memory: str
    shm: str
    user: int
    recorder: Recorder
    agent_image: str
    ptrace: bool
    hang_after_s: float
    #: Seconds after which the cluster ends the job, whatever it does.
    limit_s: int
    #: Seconds after which a job that has ended is removed.
    kept_s: int
    #: URL below which each pod sends its Case; without it Cases stay in the pods.
    out: str | None = None


def training_pod(job: TrainingJob, container: str, torchrun: Sequence[str]) -> Manifest:
    """A pod template; ``torchrun`` are the words that start the ranks of one node."""
    record = job.recorder == "record"
    words = [*torchrun, *job.program]
    trainer = {
        "name": container,
        "image": job.image,
        "command": recorded(job, words) if record else words,
        "env": [
            *([_pod_name()] if job.out and record else []),
            {"name": "HOME", "value": "/tmp"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "resources": _resources(job),
        "securityContext": _trainer_rights(job),
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
            *([{"name": "cases", "mountPath": CASES}] if record else []),
        ],
    }
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"fsGroup": job.user},
        "containers": [trainer],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": _TEMPORARY_LIMIT}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": job.shm}},
        ],
    }
    if job.recorder != "none":
        spec["volumes"].append(_cases())
    if job.recorder == "sidecar":
        # Kubernetes ends such a container once the others have ended; a plain one would keep
        # the job from ever being complete.
        rights = looks_into_processes(0, job.user) if job.ptrace else unprivileged(job.user)
        agent = agent_container(job.agent_image, rights, job.out)
        spec["shareProcessNamespace"] = True
        spec["volumes"].append({"name": "agent-tmp", "emptyDir": {"sizeLimit": "1Gi"}})
        spec["initContainers"] = [{**agent, "restartPolicy": "Always"}]
    return {"metadata": {"labels": labels_of(job.name)}, "spec": spec}


def recorded(job: TrainingJob, words: Sequence[str]) -> list[str]:
    """The command under ``hanglab record``.

    A job that hangs is left as it is where its Case is to be fetched: with the container's
    end, nothing can be read out of it any more.
    """
    out = _sent(job.out) if job.out else CASE
    options = ["--hang-after", f"{job.hang_after_s:g}", "--then", "kill" if job.out else "leave"]
    return ["hanglab", "record", "--out", out, *options, "--", *words]


def agent_container(image: str, rights: Manifest, out: str | None = None) -> Manifest:
    """A container that captures jobs that stop, and those that it is asked for by an exec.

    ``out`` is the URL below which its Cases are sent besides.
    """
    return {
        "name": AGENT,
        "image": image,
        "command": [
            "hanglab", "watch", "--state", STATE, "--out", _sent(out) if out else WATCHED,
        ],
        "env": [*([_pod_name()] if out else []), {"name": "HOME", "value": "/tmp"}],
        "resources": _AGENT_RESOURCES,
        "securityContext": rights,
        "volumeMounts": [
            {"name": "cases", "mountPath": CASES},
            {"name": "agent-tmp", "mountPath": "/tmp"},
        ],
    }  # fmt: skip


def _sent(url: str) -> str:
    return f"{url.rstrip('/')}/$({_POD})"


def labels_of(name: str) -> dict[str, str]:
    """Labels by which what belongs to a job is found, and taken away."""
    return {JOB_LABEL: name, "app.kubernetes.io/managed-by": "hanglab"}


def missing(job: TrainingJob) -> list[str]:
    """Sentences on what a capture of these pods will lack, and why."""
    said = []
    if job.recorder == "none":
        return ["Nothing of hanglab is in these pods: the DaemonSet alone can capture them."]
    if job.recorder == "sidecar":
        said.append(
            "The sidecar looks from outside: no steps, no sections, no buffers of ranks without "
            "torch's pipe. `--recorder record` has them."
        )
    if job.recorder == "sidecar" and not job.ptrace:
        said.append(
            "Without SYS_PTRACE a node whose kernel.yama.ptrace_scope is 1 or more shows no stacks."
        )
    if job.recorder == "record" and not (job.ptrace and job.user == 0):
        said.append(
            "Without SYS_PTRACE, which only root can have, a node whose kernel.yama.ptrace_scope "
            "is 1 or more gives stacks from within ranks alone: none of one that is stopped or "
            "holds the interpreter's lock."
        )
    if not job.out:
        said.append(
            "A Case goes with its pod: fetch it with `hanglab capture --kubernetes` while the job "
            "hangs, or have it sent by --out URL, also where the job fails."
        )
    return said


def _trainer_rights(job: TrainingJob) -> Manifest:
    if job.recorder == "record" and job.ptrace and job.user == 0:
        return looks_into_processes(0, 0)
    return unprivileged(job.user)


def _resources(job: TrainingJob) -> Manifest:
    amounts = {"cpu": job.cpus, "memory": job.memory}
    if job.gpus:
        amounts["nvidia.com/gpu"] = str(job.gpus)
    return {"requests": amounts, "limits": dict(amounts)}


def _cases() -> Manifest:
    return {"name": "cases", "emptyDir": {"sizeLimit": _CASES_LIMIT}}


def _pod_name() -> Manifest:
    return {"name": _POD, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
