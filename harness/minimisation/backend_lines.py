"""Lines of a script that depend on the backend that it is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hanglab.recorder.case.backends import backend_of

_GLOO_WAITS = (
    "It hangs until gloo's timeout of 30 minutes, or half a minute beyond Ctrl-C: so long torchrun "
    "lets ranks that wait"
)
_NCCL_WAITS = "It hangs until NCCL's timeout of 10 minutes"
#: Waits for the device, so that what follows comes after all that the rank has launched.
SYNCHRONIZE = "torch.cuda.synchronize"
#: Waits for it at the end: by asking, as a host that a device holds up would be to blame by itself.
WAIT_FOR_DEVICE = (
    "done = torch.cuda.Event()",
    "done.record()",
    "while not done.query():",
    "    time.sleep(0.01)",
)


def on_device(backend: str) -> bool:
    """True if the backend's operations are on tensors of a device, and hosts go on from them."""
    return backend_of(backend).enqueued


def initialisation(backend: str) -> list[str]:
    """Lines that join the default group; an emulated backend has the name of the one it is like."""
    name = backend_of(backend).behaves_as or backend
    if not on_device(backend):
        return [f'dist.init_process_group("{name}")']
    return [
        'device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))',
        "torch.cuda.set_device(device)",
        f'dist.init_process_group("{name}")',
    ]


def connections(groups: Sequence[str]) -> list[str]:
    """Lines that make the groups' communicators, which the job had made long before.

    ``groups`` are names of theirs; "" of the default one.
    """
    names = ", ".join(name or "dist.group.WORLD" for name in dict.fromkeys(groups))
    return [
        "",
        "",
        f"for group in [{names}]:",
        "    if dist.get_rank(group) >= 0:",
        "        dist.barrier(group)",
    ]


def commands(backend: str, ranks: int, script: str) -> Iterator[str]:
    """Command lines that run the script."""
    gpus = f"  # {ranks} GPUs" if backend_of(backend).enqueued else ""
    yield f"torchrun --nproc-per-node {ranks} {script}{gpus}"
    if backend_of(backend).emulated:
        yield f"hanglab run {script} --world-size {ranks} --backend {backend}  # no GPU"


def scenario_backends(backend: str) -> str:
    """The backends that a scenario declares: the one that it was confirmed on, and its model."""
    names = dict.fromkeys([backend_of(backend).behaves_as or backend, backend])
    return ", ".join(f'"{name}"' for name in names) + ("," if len(names) == 1 else "")


def told_hang(backend: str) -> str:
    """The time that the script hangs, in words."""
    return _NCCL_WAITS if on_device(backend) else _GLOO_WAITS


__all__ = [
    "SYNCHRONIZE",
    "WAIT_FOR_DEVICE",
    "commands",
    "connections",
    "initialisation",
    "on_device",
    "scenario_backends",
    "told_hang",
]
