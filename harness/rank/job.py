"""The job as the body of a scenario sees it, inside a rank."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from hanglab import recorder
from hanglab.harness.rank import emulated_device
from hanglab.recorder.case.backends import DEFAULT_BACKEND, backend_of

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from hanglab.harness.system.stalling_file import Storage


@dataclass(frozen=True)
class Job:
    """Conveniences for a scenario's body; a body that uses only torch works as well."""

    rank: int
    world_size: int
    local_rank: int
    #: False in the control run.
    faulty: bool
    seed: int
    #: ``gloo``, ``nccl`` or ``nccl-emulated``.
    backend: str

    @classmethod
    def from_environment(cls) -> Job:
        """Reads what the launcher set: RANK, WORLD_SIZE, LOCAL_RANK and the HANGLAB_* names."""
        rank = int(os.environ["RANK"])
        return cls(
            rank=rank,
            world_size=int(os.environ["WORLD_SIZE"]),
            local_rank=int(os.environ.get("LOCAL_RANK", rank)),
            faulty=os.environ.get("HANGLAB_FAULT", "1") != "0",
            seed=int(os.environ.get("HANGLAB_SEED", "0")),
            backend=os.environ.get("HANGLAB_BACKEND", DEFAULT_BACKEND),
        )

    @property
    def device(self) -> torch.device:
        """The rank's device: the CPU on gloo; on NCCL a GPU, shared where there are too few.

        On the emulated backend it is ``cuda``, too, whose tensors lie on the CPU.
        """
        import torch

        if not backend_of(self.backend).enqueued:
            return torch.device("cpu")
        return torch.device("cuda", self.local_rank % torch.cuda.device_count())

    def steps(self, count: int) -> Iterator[int]:
        """Training steps 0 to ``count - 1``, each made known to the recorder."""
        for step in range(count):
            recorder.step()
            yield step

    def section(self, name: str) -> AbstractContextManager[object]:
        """A named part of the step whose time the recorder keeps."""
        section: AbstractContextManager[object] = recorder.section(name)
        return section

    def synchronize(self) -> None:
        """Waits for the rank's device, as reading the loss does; on gloo there is none."""
        if backend_of(self.backend).enqueued:
            import torch

            torch.cuda.synchronize()

    def batch(self, features: int, rows: int = 32) -> torch.Tensor:
        """Random float32 numbers, shape [rows, features], on the rank's device.

        They follow torch's generator, which is seeded from the run's seed and the rank.
        """
        import torch

        return torch.randn(rows, features, device=self.device)

    def disk(self, mebibytes: float, at: str | None = None) -> Path:
        """A disk of the rank's own with so much room, over folder ``at`` or a new one.

        Only this rank sees it, and it is gone with the rank.  Needs ``private_mounts``.
        """
        from hanglab.harness.system.mounts import mount_disk

        return mount_disk(mebibytes, at)

    def storage(self, size: int) -> Storage:
        """A file of ``size`` bytes on a file system that a server keeps, as NFS does.

        Only this rank sees it.  Needs ``private_storage``.
        """
        from hanglab.harness.system.stalling_file import Storage

        return Storage(size)


def run_body(body: FunctionType) -> None:
    """Runs a scenario's body in this rank.

    Random generators are seeded by seed and rank.  Where the body's file does
    not initialise the default process group itself, that is done here before
    the body and undone after it; an exception leaves the group as it is, since
    peers may wait in it.
    """
    import torch
    import torch.distributed as dist

    job = Job.from_environment()
    torch.manual_seed(job.seed * 1_000_003 + job.rank)
    random.seed(job.seed * 1_000_003 + job.rank)
    backend = backend_of(job.backend)
    emulated_device.prepare()
    if backend.enqueued:
        torch.cuda.set_device(job.device)
    if initialises_itself(body):
        body(job)
        return
    # Bound to its device, a rank never has to guess one, and connects at once.
    device = job.device if backend.enqueued else None
    dist.init_process_group(job.backend, device_id=device)
    _keep(dist.group.WORLD)
    body(job)
    if dist.is_initialized():
        dist.destroy_process_group()


def _keep(group: object) -> None:
    """Let a group live until the process has gone.

    gloo's group joins its threads when it is destroyed, and holds the interpreter's
    lock meanwhile (torch 2.13, ProcessGroupGloo.cpp): where one of them needs it, a job
    that has done everything right hangs or aborts at its end.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def initialises_itself(body: FunctionType) -> bool:
    """True if the body, or a function beside it in its file, names ``init_process_group``."""
    beside = [value for value in body.__globals__.values() if isinstance(value, FunctionType)]
    return any(
        "init_process_group" in names
        for function in [body, *beside]
        if function.__code__.co_filename == body.__code__.co_filename
        for names in _names(function.__code__)
    )


def _names(code: CodeType) -> Iterator[tuple[str, ...]]:
    yield code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
