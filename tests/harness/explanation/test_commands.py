"""Commands to run: those that can answer after the end that the rank came to."""

from __future__ import annotations

import signal

import pytest

from hanglab.harness.report.explanation.commands import COMMANDS, CommandSubject
from hanglab.harness.report.explanation.parts import ProcessPlace


@pytest.mark.parametrize(
    ("by", "dumps"),
    [(signal.SIGSEGV, True), (signal.SIGABRT, True), (signal.SIGKILL, False), (None, False)],
)
def test_a_core_dump_is_looked_for_where_the_signal_leaves_one(
    by: signal.Signals | None, dumps: bool
) -> None:
    gone = CommandSubject(ProcessPlace(1, gone=True), None, None, by)
    assert (COMMANDS["core_dump"](gone) is not None) == dumps
