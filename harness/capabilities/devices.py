"""GPUs and what talks between them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from hanglab.harness.capabilities.registry import Capability, capability, checks


@checks("gpu")
def _gpu() -> Capability:
    tool = shutil.which("nvidia-smi")
    remedy = "run on a machine with an NVIDIA GPU and its driver"
    if tool is None:
        return Capability("gpu", False, "no nvidia-smi on the path", remedy)
    try:
        listed = subprocess.run(
            [tool, "-L"], check=False, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return Capability("gpu", False, f"nvidia-smi does not answer: {failure}", remedy)
    gpus = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    if listed.returncode or not gpus:
        said = (listed.stdout + listed.stderr).strip().splitlines()
        return Capability("gpu", False, said[0] if said else "nvidia-smi lists none", remedy)
    return Capability(
        "gpu", True, f"{len(gpus)} x {gpus[0].split(':', 1)[1].split('(')[0].strip()}"
    )


@checks("nccl")
def _nccl() -> Capability:
    if not capability("gpu").available:
        return Capability("nccl", False, "no GPU", capability("gpu").remedy)
    if not _torch_file("libtorch_cuda*"):
        return Capability("nccl", False, "torch is a CPU build", "install a CUDA build of torch")
    return Capability("nccl", True, "torch is a CUDA build")


def _torch_file(pattern: str) -> bool:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return any(Path(spec.origin).parent.joinpath("lib").glob(pattern))
