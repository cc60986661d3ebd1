"""A full disk without containers: its probe keeps no page from who fills it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from small_disks import small_disk

from hanglab.harness.faults.full_file_systems import SpaceProbe, fill


@dataclass
class _ThisMachine:
    pid: int


def test_a_disk_that_is_probed_all_the_while_becomes_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        probe = SpaceProbe(_ThisMachine(os.getpid()), str(disk), 4096)  # type: ignore[arg-type]
        for turn in range(200):
            ballast, stop = disk / "ballast", threading.Event()

            def ask(stop: threading.Event = stop) -> None:
                while not stop.is_set():
                    probe.struck()

            asking = threading.Thread(target=ask)
            asking.start()
            fill(str(ballast))
            stop.set()
            asking.join()
            assert probe.struck().proved, turn
            ballast.unlink()
            assert not probe.struck().proved
