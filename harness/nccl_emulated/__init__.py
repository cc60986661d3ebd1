"""NCCL's semantics without a GPU: a c10d backend whose device is emulated on the CPU.

``hanglab.harness.nccl_emulated.register()`` makes it known to torch; then
``torch.distributed.init_process_group("nccl_emulated")`` works in any script.
docs/nccl-emulated.md says what is emulated, after which source, and what is not.
"""

from __future__ import annotations


def register() -> None:
    """Make the backend known to torch; raises EmulationError where torch has no gloo."""
    from hanglab.harness.nccl_emulated.registration import check_torch, register

    check_torch()
    register()


__all__ = ["register"]
