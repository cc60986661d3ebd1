"""What recording costs: per operation, per section, per step, at import, and per capture.

``python benchmarks/recorder.py`` prints one line per figure.  Each pair is
measured by turns in one run, as the machine's speed changes while it runs; the
best of several rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 7


def import_time() -> None:
    """Import of the in-rank part in a fresh interpreter, against an empty program."""
    found: dict[str, list[float]] = {"pass": [], "import hanglab.recorder.rank.recorder": []}
    for _ in range(ROUNDS):
        for code, times in found.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    empty, full = (min(times) for times in found.values())
    print(f"import                     {(full - empty) * 1e3:8.1f} ms of processor time")


class Work:
    """Stands for torch's Work, so that only the recording is measured."""

    def wait(self) -> bool:
        return True


class Options:
    reduceOp = "SUM"


class Group:
    """Stands for torch's ProcessGroup."""

    group_name = "0"

    def _get_sequence_number_for_group(self) -> int:
        return 3

    def allreduce(self, tensors: list[object], options: Options) -> Work:
        return Work()


def boundary() -> None:
    """An operation with its wait and a section, in processor time of the calling thread."""
    import torch

    from hanglab.recorder.rank.recorder import RankRecorder

    with tempfile.TemporaryDirectory() as folder:
        recorder = RankRecorder(Path(folder) / "case", None, 0, 1, None, 0)
        hooks = recorder._boundary
        group, options, tensor = Group(), Options(), torch.ones(4)

        def reduce() -> None:
            group.allreduce([tensor], options).wait()

        def section() -> None:
            with recorder.section("forward"):
                pass

        plain, recorded, sections = [], [], []
        for _ in range(ROUNDS):
            plain.append(each(reduce))
            hooks.install(Group, Work)
            recorded.append(each(reduce))
            hooks.uninstall()
            sections.append(each(section) - each(lambda: None))
        print(f"operation and its wait     {min(recorded) - min(plain):8.2f} us")
        print(f"section                    {min(sections):8.2f} us")


def each(work: Callable[[], None], count: int = 5000) -> float:
    """Microseconds of processor time per call."""
    start = time.thread_time_ns()
    for _ in range(count):
        work()
    return (time.thread_time_ns() - start) / count / 1e3


STEP = """
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
from hanglab import recorder
dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"],
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
x = torch.ones(8, 64)
def step():
    recorder.step()
    with recorder.section("forward"):
        y = model(x).sum()
    with recorder.section("backward"):
        y.backward()
    dist.all_reduce(torch.ones(8))
    # The rest of a step of ten milliseconds, without competing for the processor.
    time.sleep(max(0.0, begin + 0.01 - time.perf_counter()))
times = []
for number in range(60):
    begin = time.perf_counter()
    cpu = time.process_time()
    step()
    times.append(time.process_time() - cpu)
times = sorted(times[10:])
print(times[len(times) // 2])
"""


def step(world_size: int = 4) -> None:
    """Processor time of a DDP step of 10 ms, recorded (agent included) and not, by turns."""
    from hanglab.recorder.rank import hook_dir

    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(3):
        for record in found:
            with tempfile.TemporaryDirectory(prefix="hl-", dir="/tmp") as folder:
                found[record] += run_step(Path(folder), world_size, record, hook_dir())
    plain, recorded = (statistics.median(times) * 1e3 for times in found.values())
    print(
        f"step of 10 ms, {world_size} ranks     {recorded - plain:8.3f} ms of processor time a "
        f"rank  ({(recorded - plain) / 10:.2%} of the step)"
    )


def run_step(folder: Path, world_size: int, record: bool, hook: Path) -> list[float]:
    program = folder / "step.py"
    program.write_text(STEP)
    environment = {
        **os.environ,
        "WORLD_SIZE": str(world_size),
        "STORE": str(folder / "store"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    agent = None
    if record:
        case, runtime = str(folder / "case"), str(folder)
        environment.update(HANGLAB_CASE=case, HANGLAB_RUNTIME=runtime, PYTHONPATH=str(hook))
        agent = start_agent(case, runtime, "60")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program)],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(world_size)
    ]
    outputs = [rank.communicate()[0] for rank in ranks]
    if agent is not None:
        agent.communicate()
    return [float(output) for output in outputs]


def start_agent(case: str, runtime: str, hang_after: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable, "-m", "hanglab.recorder.agent",
            "--case", case, "--runtime", runtime, "--hang-after", hang_after,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip


HANG = """
import os, torch, torch.distributed as dist
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"],
                        rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
for _ in range(500):
    dist.all_reduce(torch.ones(8))
if rank:
    dist.all_reduce(torch.ones(8))
import time; time.sleep(600)
"""


def capture(world_size: int = 4) -> None:
    """Time of one capture of a job that hangs."""
    from hanglab.recorder.rank import hook_dir

    with tempfile.TemporaryDirectory(prefix="hl-", dir="/tmp") as name:
        folder = Path(name)
        program = folder / "hang.py"
        program.write_text(HANG)
        case = str(folder / "case")
        agent = start_agent(case, name, "2")
        environment = {
            **os.environ,
            "WORLD_SIZE": str(world_size),
            "STORE": str(folder / "store"),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "HANGLAB_CASE": case,
            "HANGLAB_RUNTIME": name,
            "PYTHONPATH": str(hook_dir()),
        }
        ranks = [
            subprocess.Popen([sys.executable, str(program)], env={**environment, "RANK": str(rank)})
            for rank in range(world_size)
        ]
        try:
            assert agent.stdout is not None
            for line in agent.stdout:
                event = json.loads(line)
                if event["event"] == "captured":
                    print(f"capture of {world_size} ranks         {event['seconds']:8.2f} s")
                    break
        finally:
            for rank in ranks:
                rank.send_signal(signal.SIGKILL)
                rank.wait()
            agent.communicate()


FIGURES = {"import": import_time, "boundary": boundary, "step": step, "capture": capture}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], default=list(FIGURES))
    for name in parser.parse_args().figures:
        FIGURES[name]()


if __name__ == "__main__":
    main()
