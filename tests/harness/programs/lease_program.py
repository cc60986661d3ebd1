"""Processes that lease, hold and release, while some of them are killed at any moment.

``lease_program.py FOLDER PROCESSES CYCLES KILLS``: forks that many processes,
which share four things and take one or two at a time, until so many cycles are
done; kills one of them, and forks another, that often.  Prints JSON: cycles,
kills, doubles (a thing that two living processes had).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from hanglab.harness.leases.pool import LeasePool, ResourceKind

THINGS = ("a", "b", "c", "d")
THING = ResourceKind("thing", "thing", "things")


def claim(folder: Path, name: str) -> str:
    """Marks a thing as had, by other means than the lease; who had it already, if he lives."""
    path = folder / f"had-{name}"
    previous = ""
    with contextlib.suppress(FileNotFoundError):
        previous = path.read_text()
    path.write_text(str(os.getpid()))
    if previous and not (folder / f"killed-{previous}").exists():
        return previous
    return ""


def work(folder: Path, seed: int) -> None:
    """Leases for ever; each cycle, and each double lease, is one byte or line in a file."""
    chance = random.Random(seed)
    pool = LeasePool(folder / "leases", THING, THINGS)
    never = threading.Event()
    cycles = os.open(folder / "cycles", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    doubles = os.open(folder / "doubles", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        with pool.lease(chance.choice((1, 1, 2)), never, purpose="cycle") as names:
            assert names is not None
            for name in names:
                other = claim(folder, name)
                if other:
                    os.write(doubles, f"{name}: {other} and {os.getpid()}\n".encode())
            time.sleep(chance.random() * 0.004)
            for name in names:
                (folder / f"had-{name}").unlink()
        os.write(cycles, b".")


def spawn(folder: Path, seed: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work(folder, seed)
        finally:
            os._exit(1)
    return pid


def end(folder: Path, pid: int) -> None:
    (folder / f"killed-{pid}").touch()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def main() -> None:
    folder = Path(sys.argv[1])
    processes, wanted, kills = map(int, sys.argv[2:5])
    (folder / "leases").mkdir()
    (folder / "cycles").touch()
    chance = random.Random(7)
    pids = [spawn(folder, seed) for seed in range(processes)]
    done, killed = 0, 0
    try:
        until = time.monotonic() + 100
        while (done < wanted or killed < kills) and time.monotonic() < until:
            time.sleep(0.02)
            done = (folder / "cycles").stat().st_size
            if killed < kills and done >= killed * wanted // kills:
                victim = chance.randrange(processes)
                end(folder, pids[victim])
                pids[victim] = spawn(folder, 1000 + killed)
                killed += 1
    finally:
        for pid in pids:
            end(folder, pid)
    doubles = folder / "doubles"
    print(json.dumps({"cycles": done, "kills": killed, "doubles": doubles.read_text()}))


if __name__ == "__main__":
    main()
