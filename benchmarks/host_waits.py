"""Costs of telling what hosts wait for: the wrapper around Store, and the scan of /proc/PID/fd.

    python benchmarks/host_waits.py

Prints, of one run on one machine, microseconds a call with and without the wrapper, by turns, and
microseconds a process for its open files and, beside them, for reading its /proc/PID/stat.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore

from hanglab.recorder.rank.store_keys import StoreKeys
from hanglab.recorder.system import other_ends, procfs

ROUNDS = 21
CALLS = 2_000


def microseconds(act: Callable[[], object], times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        act()
    return (time.perf_counter() - begin) / times * 1e6


def compare_store(name: str, store: Store, times: int) -> None:
    """Best and median of rounds, each with the wrapper and without it."""
    acts: dict[str, Callable[[], object]] = {
        "set": lambda: store.set("plan/7", "value"),
        "get": lambda: store.get("plan/7"),
    }
    for what, act in acts.items():
        bare, wrapped = [], []
        for _ in range(ROUNDS):
            bare.append(microseconds(act, times))
            keys = StoreKeys(lambda: 0)
            keys.install(Store, PrefixStore)
            wrapped.append(microseconds(act, times))
            keys.uninstall()
        for kind, of in (("best", min), ("median", statistics.median)):
            print(f"{name} {what}, {kind}: {of(bare):.2f} us, wrapped {of(wrapped):.2f}")


def scan_processes() -> None:
    everyone = procfs.everyone()
    files, stats = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        other_ends.holders({("pipe", 1)}, everyone)
        files.append((time.perf_counter() - begin) / len(everyone) * 1e6)
        begin = time.perf_counter()
        for pid in everyone:
            procfs.stat(pid)
        stats.append((time.perf_counter() - begin) / len(everyone) * 1e6)
    print(
        f"{len(everyone)} processes: open files {statistics.median(files):.1f} us a process, "
        f"/proc/PID/stat {statistics.median(stats):.1f}"
    )


if __name__ == "__main__":
    compare_store("HashStore", HashStore(), CALLS)
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    compare_store("TCPStore", server, CALLS // 10)
    scan_processes()
