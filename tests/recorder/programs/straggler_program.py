"""Ranks with sections and a straggler detector; MODE says what befalls them.

What rank 0 is told goes to standard output, one JSON line for each report, and how long
each rank was at work in truth: a crowded machine lets nobody sleep as briefly as asked for.
"""

import json
import logging
import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from hanglab.recorder.straggler import Detector
from hanglab.recorder.straggler.window_encoding import number_of

mode = os.environ["MODE"]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
options = json.loads(os.environ.get("OPTIONS", "{}"))
logging.basicConfig(stream=sys.stderr)
# Before there is a process group, as the examples of NVIDIA's detector have it.
Detector.initialize(**options)
dist.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size
)
random.seed(rank)


def show(report):
    if report is None:
        return
    found = report.identify_stragglers()
    print(
        json.dumps(
            {
                "number": report.number,
                "relative": report.section_relative_perf_scores,
                "individual": report.section_individual_perf_scores,
                "below": {
                    name: sorted(s.rank for s in ids)
                    for name, ids in found["straggler_sections_relative"].items()
                },
                "dropped": {
                    name: sorted(s.rank for s in ids)
                    for name, ids in found["straggler_sections_individual"].items()
                },
                "gpus": [len(found[f"straggler_gpus_{k}"]) for k in ("relative", "individual")],
                "slow": sorted({(s.section, s.rank) for s in report.slow_sections()}),
                "nodes": report.rank_to_node,
                "missing": {
                    m.rank: [m.since_s, m.last_window, str(m)] for m in report.missing.values()
                },
                "unasked": report.unasked,
                "warnings": report.warnings,
                "took_ms": report.generate_report_elapsed_time,
            }
        ),
        flush=True,
    )


worked = []


def work(seconds):
    began = time.perf_counter()
    time.sleep(seconds)
    worked.append((time.perf_counter() - began) * 1e3)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def await_windows(number):
    """Wait, as rank 0, until the others' windows are there: a rank may come however late."""
    if rank == 0:
        windows = []
        while len(windows) < size - 1 or min(map(number_of, windows)) < number:
            time.sleep(0.01)
            windows = [path.read_bytes() for path in Path(options["folder"]).rglob("window_*")]


go = os.environ["STORE"] + ".go"

if mode == "scaled":
    for _ in range(10):
        with Detector.detection_section("sleep"):
            work(0.01 * (rank + 1))
        with Detector.detection_section("empty"):
            pass
        with Detector.detection_section("reduce"):
            dist.all_reduce(torch.ones(1))
    show(Detector.generate_report())

elif mode == "slower half way":
    for half in range(2):
        for _ in range(30):
            with Detector.detection_section("sleep"):
                slow = rank == 1 and half
                time.sleep(max(0.0, random.gauss(0.06 if slow else 0.02, 0.003)))
            dist.barrier()
        show(Detector.generate_report())

elif mode == "hang":
    # The last rank stays in its section, the others wait for it in the collective.
    for step in range(30):
        with Detector.detection_section("data"):
            if rank == size - 1 and step == 20:
                wait_for(go)
            time.sleep(0.002)
        dist.all_reduce(torch.ones(1))
        if step == 10:
            show(Detector.generate_report())
        if rank == 0 and step == 19:
            print("{}", flush=True)

elif mode in ("late", "frozen"):
    # A rank that does not come to the report, while the others can go on without it.
    for number in range(3):
        for _ in range(6):
            with Detector.detection_section("work"):
                time.sleep(0.001)
        if rank == size - 1 and number == 1:
            wait_for(go)
        if number == 0 or (number == 2 and mode == "late"):
            await_windows(number + 1)
        show(Detector.generate_report())
        if rank == 0 and number == 1:
            print("{}", flush=True)
            wait_for(go)

elif mode == "dies":
    for number in range(2):
        for _ in range(6):
            with Detector.detection_section("work"):
                time.sleep(0.001)
        if rank == size - 1 and number == 1:
            wait_for(go)
            os._exit(3)
        if number == 0:
            await_windows(1)
        show(Detector.generate_report())
        # What is published goes out from a thread: whoever ends at once may take it along.
        if rank == 0:
            Path(go).touch()

elif mode == "interval":
    for step in range(60):
        with Detector.detection_section("work"):
            work(0.002 * (rank + 1))
        report = Detector.generate_report_if_interval_elapsed()
        due = torch.tensor([float(Detector.is_interval_elapsed())])
        same = due.clone()
        dist.all_reduce(same)
        assert same.item() == due.item() * size, "the ranks disagree"
        if report is not None:
            print(json.dumps({"step": step, "relative": report.section_relative_perf_scores}))
        assert rank == 0 or report is None

elif mode == "alone":
    # Nothing of the job may be used to talk to the others.
    def refuse(*args, **kwargs):
        raise AssertionError("the ranks exchanged something")

    module = dist.distributed_c10d
    group, store = type(module._get_default_group()), module._get_default_store()
    kept = len(store.list_keys()) if hasattr(store, "list_keys") else None
    module._get_default_store = refuse
    for half in range(2):
        for _ in range(10):
            with Detector.detection_section("sleep"):
                work(0.01 * (rank * half + 1))
        report = Detector.generate_report()
        print(
            json.dumps(
                {
                    "relative": report.section_relative_perf_scores,
                    "individual": report.section_individual_perf_scores,
                    "rank": report.rank,
                }
            ),
            flush=True,
        )

Detector.shutdown()
print("worked", json.dumps(worked), flush=True)
print("done", flush=True)
if mode in ("dies",):
    os._exit(0)
dist.destroy_process_group()
