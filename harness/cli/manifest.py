"""``hanglab manifest``: what is told to Kubernetes, with the recorder in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hanglab.harness.cli.number_checks import finite

if TYPE_CHECKING:
    from hanglab.harness.kubernetes.pod_security import Manifest
    from hanglab.harness.kubernetes.training_pods import TrainingJob

manifest = typer.Typer(
    help="Print a manifest for Kubernetes, with the rights that a capture needs and no more.",
    no_args_is_help=True,
)

#: User of the image that `make image` builds.
_USER = 1000
_IMAGE = "hanglab:latest"

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the job.")]
_Image = Annotated[
    str, typer.Option(metavar="IMAGE", help="Image that has the program, torch and hanglab.")
]
_AgentImage = Annotated[
    str, typer.Option(metavar="IMAGE", help="Image of the sidecar, which has hanglab.")
]
_Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Without it, the one that kubectl is set to.")
]
_Nodes = Annotated[int, typer.Option(min=1, max=100_000, help="Pods of the job.")]
_Ranks = Annotated[int, typer.Option(min=1, max=1024, help="Ranks in each pod.")]
_Gpus = Annotated[int, typer.Option(min=0, max=1024, help="GPUs of each pod.")]
_Cpus = Annotated[str, typer.Option(metavar="AMOUNT", help="Processors of each pod.")]
_Memory = Annotated[str, typer.Option(metavar="AMOUNT", help="Memory of each pod.")]
_Shm = Annotated[
    str, typer.Option(metavar="AMOUNT", help="Room in /dev/shm, which counts as memory.")
]
_User = Annotated[int, typer.Option(min=0, help="Number of the user that ranks run as.")]
_Recorder = Annotated[
    Literal["record", "sidecar", "none"],
    typer.Option(
        help="`record` puts hanglab record in front of the command and has all evidence; "
        "`sidecar` leaves the container as it is, and looks into it from another."
    ),
]
_Ptrace = Annotated[
    bool,
    typer.Option(
        "--ptrace/--no-ptrace",
        help="Ask for CAP_SYS_PTRACE where it is of use, which takes root in that container.",
    ),
]
_HangAfter = Annotated[
    float, typer.Option(min=0.5, callback=finite, metavar="SECONDS", help="As of hanglab record.")
]
_Limit = Annotated[
    int, typer.Option(min=1, metavar="SECONDS", help="The cluster ends the job after so long.")
]
_Kept = Annotated[
    int, typer.Option(min=0, metavar="SECONDS", help="A job that has ended is removed after this.")
]
_Out = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Store that each pod sends its Case to, at URL/POD."),
]


@manifest.command(options_metavar="[OPTIONS] -- SCRIPT ...")
def jobset(
    context: typer.Context,
    name: _Name,
    image: _Image,
    nodes: _Nodes = 1,
    ranks_per_node: _Ranks = 1,
    gpus: _Gpus = 0,
    cpus: _Cpus = "4",
    memory: _Memory = "16Gi",
    shm: _Shm = "2Gi",
    user: _User = _USER,
    recorder: _Recorder = "record",
    agent_image: _AgentImage = _IMAGE,
    ptrace: _Ptrace = True,
    hang_after: _HangAfter = 30.0,
    limit: _Limit = 86_400,
    kept: _Kept = 86_400,
    out: _Out = None,
    namespace: _Namespace = None,
) -> int:
    """A JobSet that runs SCRIPT by torchrun on every node.

    hanglab manifest jobset train --image IMAGE --nodes 2 --gpus 8 --ranks-per-node 8 -- train.py
    """
    from hanglab.harness.kubernetes.manifests import jobset as made

    job = _job(
        context, name, image, nodes, ranks_per_node, gpus, cpus, memory, shm, user, recorder,
        agent_image, ptrace, hang_after, limit, kept, out, namespace,
    )  # fmt: skip
    return _print(made(job), job)


@manifest.command(options_metavar="[OPTIONS] -- SCRIPT ...")
def pytorchjob(
    context: typer.Context,
    name: _Name,
    image: _Image,
    nodes: _Nodes = 1,
    ranks_per_node: _Ranks = 1,
    gpus: _Gpus = 0,
    cpus: _Cpus = "4",
    memory: _Memory = "16Gi",
    shm: _Shm = "2Gi",
    user: _User = _USER,
    recorder: _Recorder = "record",
    agent_image: _AgentImage = _IMAGE,
    ptrace: _Ptrace = True,
    hang_after: _HangAfter = 30.0,
    limit: _Limit = 86_400,
    kept: _Kept = 86_400,
    out: _Out = None,
    namespace: _Namespace = None,
) -> int:
    """A PyTorchJob of Kubeflow's training operator that runs SCRIPT by torchrun on every node."""
    from hanglab.harness.kubernetes.manifests import pytorchjob as made

    job = _job(
        context, name, image, nodes, ranks_per_node, gpus, cpus, memory, shm, user, recorder,
        agent_image, ptrace, hang_after, limit, kept, out, namespace,
    )  # fmt: skip
    return _print(made(job), job)


@manifest.command()
def daemonset(
    name: Annotated[str, typer.Argument(metavar="NAME")] = "hanglab",
    image: _AgentImage = _IMAGE,
    ptrace: _Ptrace = True,
    user: Annotated[
        int, typer.Option(min=1, help="With --no-ptrace: user whose ranks it looks at.")
    ] = _USER,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=VALUE", help="Nodes that get an agent; may be repeated."),
    ] = None,
    out: _Out = None,
    namespace: _Namespace = None,
) -> int:
    """An agent on every node, for jobs that have none of hanglab in their pods.

    It sees all processes of its node (hostPID), which only a namespace at Pod
    Security level privileged admits, with or without ptrace.
    """
    from hanglab.harness.errors import UsageError
    from hanglab.harness.kubernetes.manifests import NodeAgents
    from hanglab.harness.kubernetes.manifests import daemonset as made
    from hanglab.harness.kubernetes.names import check_name

    pairs = [one.partition("=") for one in node_selector or ()]
    if any(not label or not equals for label, equals, _ in pairs):
        raise UsageError("--node-selector takes LABEL=VALUE.", "Give one such as pool=gpu.")
    _check_url(out)
    selector = {label: value for label, _, value in pairs}
    agents = NodeAgents(check_name(name), namespace, image, ptrace, user, selector, out)
    if not ptrace:
        typer.echo(
            f"hanglab: Without SYS_PTRACE only ranks of user {user} are seen, and a node whose "
            "kernel.yama.ptrace_scope is 1 or more shows no stacks of them.",
            err=True,
        )
    return _print(made(agents), None)


def _job(
    context: typer.Context,
    name: str,
    image: str,
    nodes: int,
    ranks_per_node: int,
    gpus: int,
    cpus: str,
    memory: str,
    shm: str,
    user: int,
    recorder: Literal["record", "sidecar", "none"],
    agent_image: str,
    ptrace: bool,
    hang_after: float,
    limit: int,
    kept: int,
    out: str | None,
    namespace: str | None,
) -> TrainingJob:
    from hanglab.harness.errors import UsageError
    from hanglab.harness.kubernetes.names import check_name, check_quantity
    from hanglab.harness.kubernetes.training_pods import TrainingJob

    program: list[str] = context.obj or []
    if not program:
        raise UsageError("No script is given.", "Put it behind --, such as: ... -- train.py")
    _check_url(out)
    return TrainingJob(
        check_name(name), namespace, image, program, nodes, ranks_per_node, gpus,
        check_quantity(cpus, "--cpus"), check_quantity(memory, "--memory"),
        check_quantity(shm, "--shm"), user, recorder, agent_image, ptrace, hang_after, limit,
        kept, out,
    )  # fmt: skip


def _check_url(out: str | None) -> None:
    from hanglab.harness.errors import UsageError
    from hanglab.harness.storage.locations import is_url

    if out is not None and not is_url(out):
        raise UsageError(
            "--out takes a URL.", "Give one such as s3://bucket/name, or leave it out."
        )


def _print(made: Manifest, job: TrainingJob | None) -> int:
    from hanglab.harness.kubernetes.manifest_text import text_of
    from hanglab.harness.kubernetes.training_pods import missing

    text = text_of(made)
    for sentence in missing(job) if job is not None else ():
        typer.echo(f"hanglab: {sentence}", err=True)
    print(text, end="")
    return 0
