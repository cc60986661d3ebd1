"""Forks ranks of emulated jobs off one process in which torch is imported.

Reads a line of JSON for each job: ``{"module": ..., "function": ..., "size": N, "environment":
{...}, "limit_s": ...}``; the function gets a :class:`Rank` in each rank.  Answers a line: for each
rank what it told, how it ended, and its stderr.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

#: Between two looks at a condition, in seconds.
PACE_S = 0.005
#: Within it all comes that comes at all, on a crowded machine, too, in seconds.
PATIENCE_S = 100.0


def backend() -> str:
    """What behaviours are looked at on: the emulated device, or NCCL (``make gpu``)."""
    return os.environ.get("HANGLAB_BEHAVIOURS_ON", "nccl_emulated")


class Rank:
    """One rank: its number, what it tells, and the store by which ranks wait for each other."""

    def __init__(self, number: int, size: int, file: Path, folder: Path) -> None:
        self.number = number
        self.size = size
        self.folder = folder
        self.told: dict[str, Any] = {}
        self._file = file
        self._store = dist.FileStore(str(folder / "signals"), size)

    def join(self, timeout_s: float = PATIENCE_S) -> None:
        """Initialise the default group, on the device that the tests are run on."""
        torch.set_num_threads(1)
        if backend() == "nccl":
            from hanglab.harness.rank.shared_gpu import host_identity

            os.environ.update(host_identity(os.environ, self.number))
            torch.cuda.set_device(self.number % torch.cuda.device_count())
            torch.set_default_device("cuda")
        else:
            from hanglab.harness import nccl_emulated

            nccl_emulated.register()
        store = dist.FileStore(str(self.folder / "store"), self.size)
        dist.init_process_group(
            backend(), store=store, rank=self.number, world_size=self.size,
            timeout=timedelta(seconds=timeout_s),
        )  # fmt: skip

    def tell(self, **values: Any) -> None:
        self.told.update(values)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self.told))
        new.replace(self._file)

    def signal(self, name: str) -> None:
        self._store.set(name, "1")

    def wait_for(self, name: str) -> None:
        self._store.wait([name], timedelta(seconds=PATIENCE_S))


def comes(condition: Callable[[], bool], limit_s: float) -> bool:
    """True as soon as a condition holds, False if it does not within the limit."""
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(PACE_S)
    return True


def run_rank(order: dict[str, Any], number: int, folder: Path) -> None:
    os.environ.update(order.get("environment", {}))
    error = os.open(folder / f"{number}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(error, 2)
    code = 1
    try:
        spec = importlib.util.spec_from_file_location("behaviours", order["module"])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        rank = Rank(number, order["size"], folder / f"{number}.json", folder)
        getattr(module, order["function"])(rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    # Peers may still read what lies in this process; hung threads must not hold it up either.
    (folder / f"{number}.done").touch()
    if code == 0:
        comes(lambda: len(list(folder.glob("*.done"))) >= order["size"], PATIENCE_S)
    sys.stderr.flush()
    os._exit(code)


def run_job(order: dict[str, Any]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pids = []
        for number in range(order["size"]):
            pid = os.fork()
            if pid == 0:
                run_rank(order, number, folder)
            pids.append(pid)
        codes = wait_for_all(pids, order["limit_s"])
        answers = []
        for number in range(order["size"]):
            told = folder / f"{number}.json"
            answers.append(
                {
                    "told": json.loads(told.read_text()) if told.exists() else {},
                    "code": codes[number],
                    "stderr": (folder / f"{number}.err").read_text(),
                }
            )
        return answers


def wait_for_all(pids: list[int], limit_s: float) -> list[int | None]:
    """Exit codes, negative for signals, None of those that had to be killed."""
    codes: dict[int, int | None] = {}
    until = time.monotonic() + limit_s
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    codes[pid] = None
        time.sleep(PACE_S)
    return [codes[pid] for pid in pids]


def main() -> None:
    # As the local launcher does, whose ranks need not import it in their first optimizer step.
    import torch._dynamo  # noqa: F401

    import hanglab.harness.nccl_emulated.activation  # noqa: F401  that ranks need not import it

    for line in sys.stdin:
        print(json.dumps(run_job(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
