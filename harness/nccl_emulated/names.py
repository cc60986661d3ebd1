"""Names by which scripts ask for the backend, and what is said of one that is misspelt."""

from __future__ import annotations

import difflib
from typing import Any, Final

import torch.distributed as dist

from hanglab.harness.nccl_emulated.settings import EmulationError

#: The name that torch knows the backend by.
NAME: Final = "nccl_emulated"
#: The same with the name of command lines.
SPELLINGS: Final = (NAME, "nccl-emulated")


def parts_of(backend: str) -> list[str]:
    """The backends in ``nccl`` or ``cpu:gloo,cuda:nccl``, in lower case."""
    return [part.strip().rpartition(":")[2] for part in str(backend).lower().split(",")]


def as_torch_has_it(backend: Any) -> Any:
    """The name with torch's spelling of this backend; what is no text stays as it is.

    Raises EmulationError for a name that torch does not know, and that is next to this one's.
    """
    if not isinstance(backend, str):
        return backend
    for part in parts_of(backend):
        if part in SPELLINGS or part in dist.Backend.backend_list:
            continue
        if part.upper() not in dist.Backend._plugins and difflib.get_close_matches(
            part, SPELLINGS, n=1, cutoff=0.8
        ):
            raise EmulationError(
                f"There is no backend {part!r}; did you mean {NAME!r}?",
                "torch.distributed has gloo and what was registered with it.",
            )
    return backend.replace(SPELLINGS[1], NAME)
