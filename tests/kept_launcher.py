"""One warm process for the local jobs of many tests: to start it takes longer than most jobs do."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hanglab.harness.launchers.local import LocalLauncher
    from hanglab.harness.launchers.protocol import JobPlan, RunningJob


class KeptLauncher:
    """A local launcher that goes on when the command that borrows it ends."""

    name = "local"

    def __init__(self, launcher: LocalLauncher) -> None:
        self._launcher = launcher

    def prepare(self, environment: Mapping[str, str] | None = None) -> None:
        self._launcher.prepare(environment)

    def start(self, plan: JobPlan) -> RunningJob:
        return self._launcher.start(plan)

    def close(self) -> None:
        """Nothing: the jobs have ended, and others borrow it later."""


@contextlib.contextmanager
def kept_launcher() -> Iterator[LocalLauncher]:
    """A launcher for a whole worker, which is ended at the end."""
    from hanglab.harness.launchers.local import LocalLauncher

    launcher = LocalLauncher()
    try:
        yield launcher
    finally:
        launcher.close()


@contextlib.contextmanager
def lent_to_commands(launcher: LocalLauncher) -> Iterator[None]:
    """Commands of hanglab in this process use it in place of one of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "hanglab.harness.launchers.local.LocalLauncher", lambda: KeptLauncher(launcher)
        )
        yield


def verdict_of_script(folder: Path, *words: str) -> Any:
    """Runs ``hanglab run --json`` in ``folder`` and this process; gives the verdict."""
    from hanglab.harness.cli import main

    printed, before = io.StringIO(), os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(printed):
            code = main(["run", "--json", *words])
    finally:
        os.chdir(before)
    assert code == 0, printed.getvalue()
    return json.loads(printed.getvalue())
