"""Ctrl-C at any command: one line, no traceback, exit code 130."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from hanglab.analyzer import engine
from hanglab.harness import cli


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("module", "name"), [(engine, "examine"), (cli, "_split")])
def test_whoever_interrupts_a_command_is_told_in_one_line(
    module: object,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, name, interrupt)
    assert cli.main(["analyze", str(tmp_path)]) == 130
    said = capsys.readouterr()
    assert said.err == "hanglab: interrupted\n"
    assert not said.out
