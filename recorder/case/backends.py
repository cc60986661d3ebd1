"""Backends of process groups: how each runs operations, and what its buffers leave out.

What renders and judges made-up dumps (``analyzer.program``) knows that by itself: a
mistake here would go unseen if it asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True)
class BackendSpec:
    """One backend, as torch names it.  The defaults are what is taken for granted of any."""

    name: str
    #: The host carries its operations out itself, so that a wait returns when one is done.
    blocking: bool = False
    #: A call puts its operation on a device's stream, and what runs there cannot be seen from
    #: the host's sockets.
    enqueued: bool = False
    #: Every rank needs a GPU.
    needs_gpu: bool = False
    #: It compares the sizes that ranks hand over, and aborts where they differ.
    compares_sizes: bool = False
    #: Its Flight Recorder buffers have entries of sends and receives.
    records_p2p: bool = True
    #: The state of an entry in its buffers: it follows the operation, it never changes, or
    #: (None) nobody knows.
    keeps_state: bool | None = None
    #: Its entries are named after the method that was called.
    named_by_method: bool = False
    #: The counters of its groups count sends and receives as well.
    counts_p2p: bool = False
    #: No GPU is behind it: a thread of hanglab's stands for the device.
    emulated: bool = False
    #: The backend whose behaviour it has; its own name unless it says otherwise.
    behaves_as: str = ""


_NCCL = BackendSpec("nccl", enqueued=True, needs_gpu=True, keeps_state=True)
_KNOWN: Final = {
    backend.name: backend
    for backend in (
        BackendSpec(
            "gloo",
            blocking=True,
            compares_sizes=True,
            records_p2p=False,
            keeps_state=False,
            named_by_method=True,
            counts_p2p=True,
        ),
        _NCCL,
        *(replace(_NCCL, name=name) for name in ("nccl2", "ncclx", "rccl", "xccl")),
        # As command lines call it, and as torch does.
        *(
            replace(_NCCL, name=name, needs_gpu=False, emulated=True, behaves_as="nccl")
            for name in ("nccl-emulated", "nccl_emulated")
        ),
    )
}
#: What dumps of an emulated device have where NCCL's version stands.
EMULATED_LIBRARY: Final = "emulated by hanglab"
#: Those that hanglab starts jobs on; the first unless another is asked for.
RUNNABLE: Final = ("gloo", "nccl", "nccl-emulated")
DEFAULT_BACKEND: Final = RUNNABLE[0]


def backend_of(name: str) -> BackendSpec:
    """The backend of that name, with the defaults where it is not known."""
    return _KNOWN.get(name) or BackendSpec(name)


def backends_in(setting: str) -> list[BackendSpec]:
    """Backends of a group by its setting: a name, or ``cpu:gloo,cuda:nccl``."""
    return [backend_of(part.rpartition(":")[2]) for part in setting.split(",")]
