"""One rank of a small data-parallel job with a fault in it, watched by one of three detectors.

``straggler_job.py DETECTOR FAULT STEPS`` with the environment of a rank; DETECTOR is
``hanglab``, ``nvrx`` or ``traceml``.  Rank 0 prints what it was told, a line of JSON.
The slow work is work, except where the fault is waiting: a loader that waits for its
disk.  It is run by straggler_comparison.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

MATRIX = torch.randn(160, 160)
#: Multiplications of MATRIX that take about ten milliseconds of one core.
TEN_MS = 60


def work(milliseconds: float) -> None:
    """Work for so long on a core of its own; never sleeps."""
    for _ in range(round(milliseconds / 10 * TEN_MS)):
        MATRIX @ MATRIX


class Samples(Dataset):  # type: ignore[type-arg]
    """Each sample's preparation waits for so many milliseconds, as a slow disk would."""

    def __init__(self, count: int, wait_ms: float, hang_at: int | None) -> None:
        self.count, self.wait_ms, self.hang_at = count, wait_ms, hang_at

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.hang_at:
            time.sleep(600)
        time.sleep(self.wait_ms / 1e3)
        return torch.randn(64)


class Model(torch.nn.Module):
    def __init__(self, forward_ms: float, backward_ms: float) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)
        )
        self.forward_ms, self.backward_ms = forward_ms, backward_ms

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        work(self.forward_ms)
        out: torch.Tensor = self.layers(batch)
        if out.requires_grad:
            out.register_hook(self.in_backward)
        return out

    def in_backward(self, gradient: torch.Tensor) -> torch.Tensor:
        work(self.backward_ms)
        return gradient


def section(detector: str, name: str) -> Any:
    if detector == "hanglab":
        from hanglab.recorder.straggler import Detector

        return Detector.detection_section(name)
    if detector == "nvrx":
        from nvidia_resiliency_ext.straggler import Detector as Theirs

        return Theirs.detection_section(name)
    return contextlib.nullcontext()


def whole_step(detector: str, model: torch.nn.Module) -> Any:
    if detector == "traceml":
        import traceml_ai

        return traceml_ai.trace_step(model)
    return contextlib.nullcontext()


def begin(detector: str, fault: str) -> None:
    if detector == "hanglab":
        from hanglab.recorder.straggler import Detector

        # A loader that hangs is to be told of within seconds here.
        Detector.initialize(report_time_interval=4.0 if fault == "loader hangs" else 60.0)
    elif detector == "nvrx":
        stub_cupti()
        from nvidia_resiliency_ext.straggler import Detector as Theirs

        Theirs.initialize()
    elif detector == "traceml":
        import traceml_ai

        traceml_ai.init(mode="auto")


def stub_cupti() -> None:
    """Its CUPTI module needs CUDA: it is given one that times no kernel, and no device to wait
    for.  Sections and their scores do not depend on either."""
    import types

    class CuptiProfiler:
        def __init__(self, *args: object, **kwargs: object) -> None: ...

        def initialize(self) -> None: ...

        def shutdown(self) -> None: ...

        def start(self) -> None: ...

        def stop(self) -> None: ...

        def get_stats(self) -> dict[str, object]:
            return {}

        def reset(self) -> None: ...

    module = types.ModuleType("nvrx_cupti_module")
    module.CuptiProfiler = CuptiProfiler  # type: ignore[attr-defined]
    sys.modules["nvrx_cupti_module"] = module
    torch.cuda.synchronize = lambda device=None: None  # type: ignore[assignment]


def finish(detector: str, rank: int) -> None:
    if detector == "hanglab":
        from hanglab.recorder.straggler import Detector

        report = Detector.generate_report()
        if report is not None:
            tell_ours(report)
        Detector.shutdown()
    elif detector == "nvrx":
        from nvidia_resiliency_ext.straggler import Detector as Theirs

        report = Theirs.generate_report()
        if report is not None:
            found = report.identify_stragglers()["straggler_sections_relative"]
            flagged = {name: sorted(s.rank for s in ids) for name, ids in found.items()}
            print(json.dumps({"flagged": flagged}), flush=True)
        Theirs.shutdown()


def tell_ours(report: Any) -> None:
    flagged: dict[str, list[int]] = {}
    for slow in report.slow_sections():
        flagged.setdefault(slow.section, []).append(slow.rank)
    starved = report.starvation
    below = report.identify_stragglers()["straggler_sections_relative"]
    told = {
        "flagged": flagged,
        "slow_ranks": sorted({f"{s.section} {s.slowness.kind}" for s in report.slow_sections()}),
        "below": {name: sorted(s.rank for s in ids) for name, ids in below.items()},
        "starvation": None if starved is None else [starved.everybody, list(starved.slow)],
        "missing": [str(m) for m in report.missing.values()],
        "input": {r: [w.input.share, w.input.busy] for r, w in report.windows.items() if w.input},
        "work": {
            name: {r: round(s.median, 1) for r, s in report.work(name).items()}
            for name in report.section_relative_perf_scores
        },
        "ms": report.generate_report_elapsed_time,
    }
    print(json.dumps(told), flush=True)


def main() -> None:
    detector, fault, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    begin(detector, fault)
    dist.init_process_group("gloo")
    slow = rank == 2
    starved = fault == "all starved" or (rank == 1 and fault in ("loader", "loader and forward"))
    hang_at = 4 * (steps // 2) if fault == "loader hangs" and rank == 3 else None
    samples = Samples(4 * steps, 40.0 if starved else 0.5, hang_at)
    batches = iter(DataLoader(samples, batch_size=4, num_workers=1))
    factor = {"forward x2": 2.0, "forward x1.3": 1.3, "loader and forward": 2.0}.get(fault, 1.0)
    model = Model(10 * (factor if slow else 1), 30 if slow and fault == "backward" else 10)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    for step in range(steps):
        if slow and fault == "often":
            model.forward_ms = 20 if step % 5 < 2 else 10
        if slow and fault == "every tenth":
            model.forward_ms = 210 if step % 10 == 5 else 10
        with whole_step(detector, parallel):
            with section(detector, "data"):
                batch = next(batches)
            with section(detector, "forward"):
                loss = parallel(batch).square().mean()
            with section(detector, "backward"):
                loss.backward()
            with section(detector, "optimizer"):
                optimizer.step()
                optimizer.zero_grad()
                work(22 if slow and fault == "optimizer" else 2)
        if step == 4 and detector != "traceml":
            forget(detector)
    finish(detector, rank)
    dist.barrier()
    dist.destroy_process_group()


def forget(detector: str) -> None:
    """The first steps are no guide to the rest: report on them and drop it."""
    if detector == "hanglab":
        from hanglab.recorder.straggler import Detector

        Detector.generate_report()
    else:
        from nvidia_resiliency_ext.straggler import Detector as Theirs

        Theirs.generate_report()


if __name__ == "__main__":
    main()
