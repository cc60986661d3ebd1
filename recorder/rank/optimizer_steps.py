"""The optimizer's steps, by torch's own hooks for all optimizers.

They mark the steps of a job that marks none itself, and time the update apart
from the rest of the rank's work.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from hanglab.recorder.rank.sections import UPDATE, SectionFactory

#: Name of the section that an optimizer's step is recorded as.
SECTION = "optimizer_step"


class UpdateWatch:
    """Opens a section before each optimizer's step and ends it after."""

    def __init__(self, section: SectionFactory) -> None:
        self._section = section
        #: Optimizers wrap each other: innermost last.
        self._open: list[AbstractContextManager[None]] = []
        self._handles: list[Any] = []

    def install(self, optimizer: ModuleType) -> None:
        """``optimizer`` is torch.optim.optimizer.  Installing twice does nothing."""
        if self._handles:
            return
        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._before),
            optimizer.register_optimizer_step_post_hook(self._after),
        ]

    def uninstall(self) -> None:
        while self._handles:
            with contextlib.suppress(Exception):
                self._handles.pop().remove()

    def _before(self, optimizer: object, args: object, kwargs: object) -> None:
        from torch.compiler import is_dynamo_compiling

        # A compiled step is traced with its hooks: there must be nothing to trace.
        if is_dynamo_compiling():
            return
        if len(self._open) > 8:
            # Steps that raised left theirs open.
            self._open.clear()
        section = self._section(SECTION, UPDATE)
        section.__enter__()
        self._open.append(section)

    def _after(self, optimizer: object, args: object, kwargs: object) -> None:
        from torch.compiler import is_dynamo_compiling

        if is_dynamo_compiling():
            return
        if self._open:
            self._open.pop().__exit__(None, None, None)
