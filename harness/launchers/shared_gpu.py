"""Runs a plain script as a rank that shares its GPU: torchrun gives all ranks one environment.

``python -m hanglab.harness.launchers.shared_gpu SCRIPT [ARGUMENT...]``
"""

from __future__ import annotations

import os
import runpy
import sys

from hanglab.harness.launchers.environment import host_identity


def share() -> None:
    """Gives this rank a host identity of its own, before NCCL asks for one."""
    os.environ.update(host_identity(os.environ, int(os.environ.get("RANK", "0"))))


def main() -> None:
    share()
    del sys.argv[0]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
