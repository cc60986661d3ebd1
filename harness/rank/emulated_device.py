"""Runs a plain script as a rank whose device is emulated: it names NCCL, and gets the emulation.

``python -m hanglab.harness.rank.emulated_device SCRIPT [ARGUMENT...]``
"""

from __future__ import annotations

import os
import runpy
import sys

from hanglab.recorder.case.backends import backend_of


def prepare() -> None:
    """Has this process emulate a device, where its job's backend is an emulated one."""
    if backend_of(os.environ.get("HANGLAB_BACKEND", "")).emulated:
        from hanglab.harness.nccl_emulated.activation import activate

        activate()


def main() -> None:
    prepare()
    del sys.argv[0]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
