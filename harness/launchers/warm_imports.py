"""A process that has imported what ranks need, so that they need not."""

from __future__ import annotations

import contextlib
import gc
import importlib
import linecache
import os
import socket
import tempfile
from collections.abc import Iterator

from hanglab.harness.launchers.environment import WARM_IMPORTS
from hanglab.harness.launchers.supervision import forked_ranks
from hanglab.harness.launchers.supervision.forked_ranks import RankSpec
from hanglab.harness.launchers.supervision.root import RootSupervisor, dying_with

#: What training scripts import.  torch._dynamo is needed for the stacks of a
#: Flight Recorder dump; to import it only then takes seconds of a hung job.
_NEEDED = ("torch", "torch.distributed", "torch._dynamo")
_USEFUL = (
    "numpy",
    "torch.multiprocessing",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data.distributed",
    "torch.distributed.algorithms.join",
    "hanglab.recorder.rank.recorder",
    "hanglab.harness.nccl_emulated.activation",
    "hanglab.harness.rank.entry",
)


def wait_for_rank(descriptor: int) -> RankSpec:
    """Imports what ranks need, then forks supervisors and ranks; returns in ranks only."""
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    # Nothing of what is imported is garbage: looking for it takes a seventh of the time.
    gc.disable()
    with dying_with(control):
        _import_all()
    root = RootSupervisor(control)
    # For good, in ranks too: a collector that visits what was imported copies every
    # page that they share, which makes a rank's normal exit take 0.9 s of processor
    # time instead of 0.35 s.  What the rank itself makes is collected as ever.
    linecache.clearcache()
    gc.collect()
    gc.freeze()
    gc.enable()
    request = root.serve()
    return forked_ranks.run_job(request.end, request.hanglab)


def _import_all() -> None:
    with _variables(
        # One thread: only the one that forks lives on in a child, and a lock that
        # another one held would stay locked there.
        OMP_NUM_THREADS="1",
        # torch._dynamo makes this folder when it is imported: one that is there already.
        TORCHINDUCTOR_CACHE_DIR=tempfile.gettempdir(),
        # CUDA does not survive a fork: whoever asks whether it is there must not start it.
        PYTORCH_NVML_BASED_CUDA_CHECK="1",
    ):
        for name in _NEEDED:
            importlib.import_module(name)
        for name in [*_USEFUL, *filter(None, os.environ.get(WARM_IMPORTS, "").split(","))]:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        harness = importlib.import_module("hanglab.harness")
        for name in harness.__all__:  # what scenario files import
            with contextlib.suppress(Exception):
                getattr(harness, name)


@contextlib.contextmanager
def _variables(**values: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
