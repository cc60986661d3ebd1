"""Delay of traces, distance of their starts, and cost of the agent, in one run.

    python benchmarks/profiling.py [--ranks 8] [--repeat 5] [--only idle|one|together]

Jobs are real torch under torchrun and look for requests once a second, the
agent's own setting.  The 64 processes of the idle agent are played: each sends
what Kineto sends, once a second.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hanglab.recorder.profiling import client, fabric, multi_host_request
from hanglab.recorder.profiling.client import Endpoint
from hanglab.recorder.profiling.configuration import TraceWindow
from hanglab.recorder.profiling.service import ProfilingService, Settings
from hanglab.recorder.profiling.trace_records import ProfileRequest, Receipt, Selection

_JOB = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
while True:
    model(torch.randn(8, 64)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step(); optimizer.zero_grad()
    open(f"up{dist.get_rank()}", "w").close()
    time.sleep(0.01)
"""
_PLAYED = 64
#: As long as Kineto waits for an answer.
_WAITS_S = 0.09


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[Endpoint]:
    service = ProfilingService(Settings(folder / "traces", "here", folder))
    try:
        yield Endpoint("127.0.0.1", service.port)
    finally:
        service.close()


@contextlib.contextmanager
def job(folder: Path, ranks: int) -> Iterator[None]:
    script = folder / "job.py"
    script.write_text(_JOB)
    (folder / "kineto.conf").write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    environment = {
        **os.environ,
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(folder),
        "KINETO_CONFIG": str(folder / "kineto.conf"),
        "KINETO_ONDEMAND_TRACE_DIR": str(folder),
        "KINETO_LOG_LEVEL": "4",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    process = subprocess.Popen(
        [*command, "--nproc-per-node", str(ranks), str(script)],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wait_for(endpoint: Endpoint, folder: Path, ranks: int) -> None:
    """Until all ranks train and have told how often they look."""
    deadline = time.monotonic() + 180
    while True:
        found = [p for p in client.status(endpoint).processes if p.is_rank]
        trained = len(list(folder.glob("up*"))) == ranks
        if trained and len(found) == ranks and all(p.period_s < 2 for p in found):
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(found)} of {ranks} ranks registered")
        time.sleep(0.2)


def request(endpoint: Endpoint, asked: ProfileRequest) -> tuple[float, list[Receipt]]:
    """Seconds until all files are complete, and the receipts."""
    begun = time.time()
    parts = multi_host_request.place(multi_host_request.RequestPlan([endpoint], asked))
    multi_host_request.follow(parts, lambda parts: None)
    receipts = parts[0].receipts
    if parts[0].problem or any(r.state != "valid" for r in receipts):
        raise SystemExit(f"{parts[0].problem} {[r.reason for r in receipts]}")
    completed = max(r.completed_ms or 0.0 for r in receipts)
    return completed / 1e3 - begun, receipts


def row(name: str, values: list[float], unit: str, limit: str) -> None:
    middle = statistics.median(values)
    spread = f"{min(values):.3g} to {max(values):.3g}" if len(values) > 1 else ""
    print(f"{name:<52} {middle:>8.3g} {unit:<4} {spread:<18} {limit}", flush=True)


def at_random(endpoint: Endpoint, asked: ProfileRequest, generator: random.Random) -> float:
    """Seconds of a request that comes at any moment between two looks of the process.

    One right after another's file would meet the same moment each time.
    """
    time.sleep(generator.random())
    return request(endpoint, asked)[0]


def measure_one(repeat: int) -> None:
    generator = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="hlb-") as name, agent(Path(name)) as endpoint:
        with job(Path(name), 2):
            wait_for(endpoint, Path(name), 2)
            iterations = [
                [
                    at_random(
                        endpoint,
                        ProfileRequest(Selection(ranks=[rank]), TraceWindow(iterations=3)),
                        generator,
                    )
                ]
                for rank in (0, 1)
            ]
            one = Selection(ranks=[0])
            for _ in range(repeat - 1):
                iterations[0].append(
                    at_random(endpoint, ProfileRequest(one, TraceWindow(iterations=3)), generator)
                )
            row("3 iterations of one rank, to a complete file", iterations[0], "s", "1.5")
            row("  the first in a process", [first for first, *_ in iterations], "s", "")
            seconds = [
                at_random(endpoint, ProfileRequest(one, TraceWindow(500)), generator)
                for _ in range(repeat)
            ]
            row("500 ms of one rank, to a complete file", seconds, "s", "5")


def measure_together(ranks: int, repeat: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hlb-") as name, agent(Path(name)) as endpoint:
        with job(Path(name), ranks):
            wait_for(endpoint, Path(name), ranks)
            together = [
                request(endpoint, ProfileRequest(window=TraceWindow(500))) for _ in range(repeat)
            ]
            row(f"500 ms of {ranks} ranks together", [s for s, _ in together], "s", "")
            skews = []
            for _, receipts in together:
                starts = [r.first_ms for r in receipts if r.first_ms is not None]
                skews.append(max(starts) - min(starts))
            row(f"first events of {ranks} ranks apart", skews, "ms", "5")


def measure_idle() -> None:
    with tempfile.TemporaryDirectory(prefix="hlb-") as name, agent(Path(name)) as endpoint:
        folder = Path(name)
        with contextlib.ExitStack() as stack:
            sockets = []
            for number in range(_PLAYED):
                sender = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                sender.settimeout(_WAITS_S)
                sender.bind(str(folder / f"dynoconfigclient{number}"))
                sockets.append(sender)
            frame = fabric.encode_request(fabric.FabricRequest(3, 0, (os.getpid(), 1)))
            own = 0.0
            begun, used = time.monotonic(), time.process_time()
            for _ in range(10):
                second = time.monotonic()
                mine = time.thread_time()
                for sender in sockets:
                    sender.sendto(frame, str(folder / fabric.DAEMON))
                for sender in sockets:
                    with contextlib.suppress(TimeoutError):
                        sender.recv(4096)
                own += time.thread_time() - mine
                time.sleep(max(0.0, 1.0 - (time.monotonic() - second)))
            share = (time.process_time() - used - own) / (time.monotonic() - begun)
            row(f"idle agent with {_PLAYED} processes", [100 * share], "%", "1 of one core")
            generator = random.Random(1)
            begun = time.monotonic()
            for _ in range(10_000):
                data = bytearray(frame)
                data[generator.randrange(len(data))] = generator.randrange(256)
                sockets[0].sendto(bytes(data[: generator.randint(0, 60)]), f"{name}/dynolog")
            serves = client.ask(endpoint, {"fn": "getStatus"}) == {"status": 1}
            verdict = "serves" if serves else "is gone"
            seconds = time.monotonic() - begun
            print(f"after 10,000 hostile frames in {seconds:.1f} s the agent {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=["idle", "one", "together"])
    options = parser.parse_args()
    print(f"{'':<52} {'median':>8} {'':<4} {'from, to':<18} limit")
    if options.only in (None, "idle"):
        measure_idle()
    if options.only in (None, "one"):
        measure_one(options.repeat)
    if options.only in (None, "together"):
        measure_together(options.ranks, options.repeat)


if __name__ == "__main__":
    main()
