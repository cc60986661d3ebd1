"""Emulated jobs for tests: ranks are forked off one warm process.

``make gpu`` sets HANGLAB_BEHAVIOURS_ON to ``nccl``: then the tests that are marked ``on_nccl`` run
on real GPUs, and what comes of each is left in ``artifacts/nccl-behaviours.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated_support import PROGRAMS, Ended, Run

_ON = "HANGLAB_BEHAVIOURS_ON"
_LEFT = Path("artifacts") / "nccl-behaviours.json"
_OUTCOMES: dict[str, str] = {}
_EMULATED_ALONE = f"it is about the emulated device alone: run it without {_ON}"
_NO_GPU = "torch sees no GPU with NCCL: run it where there is one"


def _on_nccl() -> bool:
    return os.environ.get(_ON) == "nccl"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not _on_nccl():
        return
    for item in items:
        if item.get_closest_marker("on_nccl") is None:
            item.add_marker(pytest.mark.skip(reason=_EMULATED_ALONE))
        elif not _gpus():
            item.add_marker(pytest.mark.skip(reason=_NO_GPU))


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.distributed.is_nccl_available() else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    report = yield
    if _on_nccl() and report.when == "call" and item.get_closest_marker("on_nccl"):
        _OUTCOMES[item.name] = report.outcome
    return report


def pytest_sessionfinish() -> None:
    if not _OUTCOMES:
        return
    import torch

    version = ".".join(map(str, torch.cuda.nccl.version()))
    device = f"{torch.cuda.get_device_name(0)}, NCCL {version}, torch {torch.__version__}"
    _LEFT.parent.mkdir(exist_ok=True)
    _LEFT.write_text(json.dumps({"device": device, "tests": _OUTCOMES}, indent=1, sort_keys=True))


def _environment(size: int) -> dict[str, str]:
    """Variables of a job on NCCL, whose ranks may share a GPU."""
    if not _on_nccl():
        return {}
    from hanglab.harness.launchers.environment import nccl_environment

    devices = [str(number) for number in range(min(_gpus(), size))]
    return nccl_environment(devices, size, 28028)


@pytest.fixture(scope="session")
def run_ranks() -> Iterator[Run]:
    """``run_ranks("module.py", "function", size, limit_s=..., VARIABLE=...)``."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "forked_ranks.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(
        module: str, function: str, size: int, limit_s: float = 150.0, **environment: str
    ) -> list[Ended]:
        assert process.stdin is not None and process.stdout is not None
        order = {
            "module": str(PROGRAMS / module),
            "function": function,
            "size": size,
            "limit_s": limit_s,
            "environment": {**_environment(size), **environment},
        }
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        return [Ended(**answer) for answer in json.loads(process.stdout.readline())]

    try:
        yield run
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(150)
