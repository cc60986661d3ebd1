"""What the recorder's thread makes for an answer starts no collection in it."""

from __future__ import annotations

import gc
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from hanglab.recorder.rank.service import THREAD_NAME, Service


@pytest.mark.parametrize("enabled", [True, False])
def test_finalizers_of_the_job_do_not_run_in_an_answer(tmp_path: Path, enabled: bool) -> None:
    started: list[str] = []

    def heard(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            started.append(threading.current_thread().name)

    def answer(command: str) -> list[Any]:
        def part() -> dict[str, Any]:
            kept: list[list[Any]] = []
            for _ in range(50 * gc.get_threshold()[0]):
                kept.append([kept])
            kept.clear()
            return {"collected": started.count(THREAD_NAME), "enabled": gc.isenabled()}

        return [part]

    service = Service(tmp_path / "s", lambda: None, lambda: None, answer)
    service.start()
    was = gc.isenabled()
    gc.callbacks.append(heard)
    try:
        gc.enable() if enabled else gc.disable()
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(tmp_path / "s"))
            asking.sendall(json.dumps({"command": "any"}).encode() + b"\n")
            told = json.loads(asking.makefile("rb").readline())
            # Behind the answer comes the end, when the pause is over.
            assert asking.makefile("rb").readline() == b""
        assert told["collected"] == 0 and not told["enabled"]
        assert gc.isenabled() is enabled
    finally:
        gc.callbacks.remove(heard)
        gc.enable() if was else gc.disable()
