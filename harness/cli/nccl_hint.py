"""The way to run a script for NCCL where there is none, told when that is why it ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from hanglab.analyzer.verdict import Verdict

#: torch, of a backend that this machine or this process lacks (distributed_c10d.py,
#: ProcessGroupNCCL.cpp).
_LACKING = re.compile(
    r"Distributed package doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs"
    r"|Unknown backend type nccl[-_]emulated\b|Torch not compiled with CUDA enabled"
    r"|No CUDA GPUs are available|Found no NVIDIA driver"
)


def tell_of_emulation(verdict: Verdict | None) -> None:
    """Say on stderr what runs the script as it is, where it wanted NCCL or CUDA in vain."""
    if verdict is None or not any(_LACKING.search(one.detail) for one in verdict.evidence):
        return
    typer.echo(
        "hanglab: `hanglab run SCRIPT --backend nccl-emulated` runs scripts for NCCL and CUDA "
        "without a GPU, on an emulated device",
        err=True,
    )


__all__ = ["tell_of_emulation"]
