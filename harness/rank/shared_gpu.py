"""Runs a plain script as a rank that shares its GPU: torchrun gives all ranks one environment.

``python -m hanglab.harness.rank.shared_gpu SCRIPT [ARGUMENT...]``
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

#: In the environment of ranks that share a GPU.
SHARED_GPU = "HANGLAB_SHARED_GPU"


def share() -> None:
    """Gives this rank a host identity of its own, before NCCL asks for one."""
    os.environ.update(host_identity(os.environ, int(os.environ.get("RANK", "0"))))


def host_identity(environment: Mapping[str, str], rank: int) -> dict[str, str]:
    """Variables that let a rank share its GPU with others; none where it does not.

    NCCL compares host and bus of two ranks, and takes the host from this name
    alone where it is set (init.cc and its ``getHostHash``, NCCL 2.28).
    """
    if not environment.get(SHARED_GPU):
        return {}
    job = environment.get("TORCHELASTIC_RUN_ID") or environment.get("HANGLAB_RUNTIME", "hanglab")
    return {"NCCL_HOSTID": f"{Path(job).name}-r{rank}"}


def main() -> None:
    share()
    del sys.argv[0]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
