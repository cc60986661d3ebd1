"""Cost of recording per operation, per section, per step, at import, and per capture.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hanglab.recorder.rank import hook_dir
from hanglab.recorder.rank.native import WRITER

ROUNDS = 7
#: What writes sections and steps: by its name, the environment that chooses it.
WRITERS = {"native": "0", "python": "1"} if WRITER is not None else {"python": "1"}


def import_time() -> None:
    """Imports of the parts inside ranks in a fresh interpreter, less that of an empty program."""
    modules = ("hanglab.recorder.rank.recorder", "hanglab.recorder.straggler")
    found: dict[str, list[float]] = {"pass": []} | {f"import {name}": [] for name in modules}
    for _ in range(ROUNDS):
        for code, times in found.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    empty = min(found.pop("pass"))
    for code, times in found.items():
        print(f"{code:<40} {(min(times) - empty) * 1e3:8.1f} ms of processor time")


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

    from hanglab.recorder.rank.progress_file import ProgressFile
    from hanglab.recorder.rank.recorder import RankRecorder
    from hanglab.recorder.rank.sections import section_type

    with tempfile.TemporaryDirectory() as folder:
        recorder = RankRecorder(Path(folder) / "case", None, 0, 1, None, 0)
        hooks = recorder._boundary
        group, options, tensor = Group(), Options(), torch.ones(4)

        def reduce() -> None:
            group.allreduce([tensor], options).wait()

        def in_section(writer: Any) -> Callable[[], None]:
            section = section_type(ProgressFile(None, writer))

            def work() -> None:
                with section("forward"):
                    pass

            return work

        writers = {"native": WRITER, "python": None}
        works = {name: in_section(writers[name]) for name in WRITERS}
        plain, recorded = [], []
        sections: dict[str, list[float]] = {name: [] for name in WRITERS}
        for _ in range(ROUNDS):
            plain.append(each(reduce))
            hooks.install(Group, Work)
            recorded.append(each(reduce))
            hooks.uninstall()
            for name, work in works.items():
                sections[name].append(each(work) - each(lambda: None))
        print(f"operation and its wait     {min(recorded) - min(plain):8.2f} us")
        for name, times in sections.items():
            print(f"section, {name:<18}{min(times):8.2f} us")


def each(work: Callable[[], None], count: int = 5000) -> float:
    """Microseconds of processor time per call."""
    start = time.thread_time_ns()
    for _ in range(count):
        work()
    return (time.thread_time_ns() - start) / count / 1e3


STEP = """
import os, sys, threading, time, torch, torch.distributed as dist
torch.set_num_threads(1)
from torch._C._distributed_c10d import ProcessGroup, Work
from hanglab import recorder
dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"],
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
x = torch.ones(8, 64)
active, hooks = recorder._active, recorder._active._boundary
thread = next(t.native_id for t in threading.enumerate() if t.name == "hanglab-recorder")
def in_thread():
    with open(f"/proc/self/task/{thread}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9
def step():
    recorder.step()
    with recorder.section("forward"):
        y = model(x).sum()
    with recorder.section("backward"):
        y.backward()
    dist.all_reduce(torch.ones(8))
def bare():
    y = model(x).sum()
    y.backward()
    dist.all_reduce(torch.ones(8))
# Recorded; the same program unrecorded; and without a word of the recorder in it.
KINDS = ("recorded", "unrecorded", "bare")
times = {kind: [] for kind in KINDS}
began, used = time.perf_counter(), in_thread()
for number in range(900):
    kind = KINDS[number // 10 % 3]
    if number % 10 == 0:
        recorder._record_with(active if kind == "recorded" else None)
        hooks.install(ProcessGroup, Work) if kind == "recorded" else hooks.uninstall()
    work = bare if kind == "bare" else step
    begin, cpu = time.perf_counter(), time.thread_time()
    work()
    times[kind].append(time.thread_time() - cpu)
    # The rest of a step of ten milliseconds, without competing for the processor.
    time.sleep(max(0.0, begin + 0.01 - time.perf_counter()))
median = {kind: sorted(found)[len(found) // 2] for kind, found in times.items()}
share = (in_thread() - used) / (time.perf_counter() - began)
print(median["recorded"] - median["unrecorded"], median["recorded"] - median["bare"], share)
"""


def step(world_size: int = 4) -> None:
    """A DDP step of 10 ms on each of 4 ranks: processor time that recording adds.

    In the training thread: the median with the hooks against that without, and
    against that of steps which do not call the recorder at all, by turns in one
    job.  Beside it: the recorder's thread and the agent.
    """
    for name, pure in WRITERS.items():
        with tempfile.TemporaryDirectory(prefix="hl-", dir="/tmp") as folder:
            environment = {"HANGLAB_PURE_PYTHON": pure}
            outputs, agent_share = run_job(Path(folder), STEP, world_size, environment)
        added, whole, share = (statistics.mean(values) for values in zip(*outputs, strict=True))
        print(f"step of 10 ms, {name}: in its thread {added * 1e6:6.1f} us ({added / 0.01:.2%})")
        print(f"     against one without calls {whole * 1e6:6.1f} us ({whole / 0.01:.2%})")
        print(f"                     beside it {share * 1e4:6.1f} us ({share:.2%})")
        print(f"                         agent {agent_share * 1e4:6.1f} us ({agent_share:.2%})")


def run_job(
    folder: Path, text: str, world_size: int, environment: dict[str, str]
) -> tuple[list[list[float]], float]:
    """Numbers that each rank printed, and the agent's share of a core meanwhile."""
    case, runtime = str(folder / "case"), str(folder)
    agent = start_agent(case, runtime, "60")
    ranks = start_ranks(folder, text, world_size, environment, stdout=subprocess.PIPE)
    for event in events(agent):
        if event["event"] == "rank":
            break
    begin, used = time.perf_counter(), cpu_of(agent.pid)
    outputs = [rank.communicate()[0].split() for rank in ranks]
    share = (cpu_of(agent.pid) - used) / (time.perf_counter() - begin)
    agent.communicate()
    return [[float(word) for word in output] for output in outputs], share


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def events(agent: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert agent.stdout is not None
    for line in agent.stdout:
        yield json.loads(line)


def start_ranks(
    folder: Path, text: str, world_size: int, more: dict[str, str], **options: Any
) -> list[subprocess.Popen[bytes]]:
    program = folder / "job.py"
    program.write_text(text)
    environment = {
        **os.environ,
        "WORLD_SIZE": str(world_size),
        "STORE": str(folder / "store"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HANGLAB_CASE": str(folder / "case"),
        "HANGLAB_RUNTIME": str(folder),
        "PYTHONPATH": str(hook_dir()),
        **more,
    }
    return [
        subprocess.Popen(
            [sys.executable, str(program)], env={**environment, "RANK": str(rank)}, **options
        )
        for rank in range(world_size)
    ]


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
    with tempfile.TemporaryDirectory(prefix="hl-", dir="/tmp") as name:
        folder = Path(name)
        agent = start_agent(str(folder / "case"), name, "2")
        ranks = start_ranks(folder, HANG, world_size, {}, stderr=subprocess.DEVNULL)
        try:
            for event in events(agent):
                if event["event"] == "captured":
                    print(f"capture of {world_size} ranks         {event['seconds']:8.2f} s")
                    break
        finally:
            for rank in ranks:
                rank.send_signal(signal.SIGKILL)
                rank.wait()
            agent.communicate()


def capture_many() -> None:
    """Capture 64 ranks, which share one start-up: they are forks of one process."""
    with tempfile.TemporaryDirectory(prefix="hl-", dir="/tmp") as name:
        folder = Path(name)
        agent = start_agent(str(folder / "case"), name, "4")
        program = folder / "job.py"
        program.write_text(MANY)
        environment = {
            **os.environ,
            "STORE": str(folder / "store"),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "HANGLAB_CASE": str(folder / "case"),
            "HANGLAB_RUNTIME": name,
            "PYTHONPATH": str(hook_dir()),
        }
        job = subprocess.Popen(
            [sys.executable, str(program)],
            env=environment,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            for event in events(agent):
                if event["event"] == "captured":
                    ranks = len(list(folder.glob("case/hosts/*/ranks/*/stacks.jsonl")))
                    print(f"capture of {ranks} ranks        {event['seconds']:8.2f} s")
                    break
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            agent.communicate()


MANY = """
import os, time, torch, torch.distributed as dist
torch.set_num_threads(1)
rank = 0
for number in range(1, 64):
    if os.fork() == 0:
        rank = number
        break
dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"],
                        rank=rank, world_size=64)
for _ in range(20):
    dist.all_reduce(torch.ones(8))
if rank:
    dist.all_reduce(torch.ones(8))
time.sleep(600)
"""


FIGURES = {
    "import": import_time,
    "boundary": boundary,
    "step": step,
    "capture": capture,
    "capture-many": capture_many,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="|".join(FIGURES), help="all without any")
    chosen = parser.parse_args().figures or list(FIGURES)
    for name in chosen:
        if name not in FIGURES:
            parser.error(f"there is no figure {name}")
    for name in chosen:
        FIGURES[name]()


if __name__ == "__main__":
    main()
