"""Cost of straggler detection, and share of right answers.

``python benchmarks/stragglers.py`` prints one line per figure; ``--only NAME`` one of
them.  What is compared is measured by turns in one run, as the machine's speed
changes while it runs.  Four ranks do not fit two cores, so the rate of detection is
taken from timings that four ranks recorded on one core in turns, step by step, and
again with the noise of four ranks at once on this machine laid over them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from operator import mul
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hanglab.recorder.slowness import slow_ranks, summarize
from hanglab.recorder.slowness.thresholds import SLOW_FACTOR
from hanglab.recorder.straggler import Detector

RANKS = 4
ROUNDS = 7
#: Steps within which a slow rank is to be found, and healthy ranks are to be left alone.
WINDOW = 50
MATRIX = torch.randn(160, 160)


def work(multiplications: int) -> None:
    for _ in range(multiplications):
        MATRIX @ MATRIX


def each(call: Callable[[], object], times: int = 20_000) -> float:
    """Processor time of a call in microseconds."""
    started = time.thread_time_ns()
    for _ in range(times):
        call()
    return (time.thread_time_ns() - started) / times / 1e3


def section_call() -> None:
    """A section, entered and left, with the other parts of a job's process idle."""
    Detector.initialize(gather_on_rank0=False)
    detector = Detector(gather_on_rank0=False)

    def on_class() -> None:
        with Detector.detection_section("section"):
            pass

    def on_object() -> None:
        with detector.detection_section("section"):
            pass

    def recorded_too() -> None:
        with Detector.detection_section("section"):
            pass

    def nothing() -> None:
        pass

    empty, shared, own = [], [], []
    for _ in range(ROUNDS):
        empty.append(each(nothing))
        shared.append(each(on_class))
        own.append(each(on_object))
    base = min(empty)
    print(f"section, Detector.detection_section    {min(shared) - base:8.2f} us")
    print(f"section, of an object                  {min(own) - base:8.2f} us")
    with tempfile.TemporaryDirectory() as folder:
        from hanglab.recorder import rank

        rank.start(folder, rank=0, world_size=1)
        recorded = min(each(recorded_too) for _ in range(ROUNDS))
        print(f"section, in a recorded job             {recorded - base:8.2f} us")
        import hanglab.recorder

        hanglab.recorder._active = None
    Detector.shutdown()
    detector.shutdown()


def in_ranks(body: Callable[[int, dict[str, Any]], None], **options: Any) -> dict[str, Any]:
    """Fork four ranks that run ``body(rank, told)``; what rank 0 put into ``told``.

    They are forked before there is any store, whose threads a fork leaves behind.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        pipes = [os.pipe() for _ in range(RANKS)]
        pids = []
        for rank in range(RANKS):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    torch.set_num_threads(1)
                    store = store_of_rank(rank, pipes)
                    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
                    Detector.initialize(**options)
                    told: dict[str, Any] = {}
                    body(rank, told)
                    if rank == 0:
                        answer.write_text(json.dumps(told))
                    dist.barrier()
                    Detector.shutdown()
                    # Rank 0 has the store; the others leave it first.
                    if rank == 0:
                        time.sleep(0.5)
                    code = 0
                finally:
                    os._exit(code)
            pids.append(pid)
        for end in (end for pipe in pipes for end in pipe):
            os.close(end)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert codes == [0] * RANKS, codes
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def store_of_rank(rank: int, pipes: list[tuple[int, int]]) -> dist.TCPStore:
    """Rank 0 has the job's store and tells the others its port."""
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        for _, writing in pipes[1:]:
            os.write(writing, store.port.to_bytes(2, "big"))
        return store
    port = int.from_bytes(os.read(pipes[rank][0], 2), "big")
    return dist.TCPStore("127.0.0.1", port, is_master=False)


def report_of_ranks() -> None:
    """Reports of rank 0 with four ranks, 100 and 1,000 sections of 50 entries each."""

    def body(rank: int, told: dict[str, Any]) -> None:
        for sections in (100, 1000):
            times = []
            for _ in range(15):
                for number in range(sections):
                    for _ in range(50 if sections == 100 else 5):
                        with Detector.detection_section(f"section {number}"):
                            pass
                dist.barrier()
                started = time.perf_counter()
                report = Detector.generate_report()
                times.append((time.perf_counter() - started) * 1e3)
                if rank == 0:
                    assert report is not None and not report.missing
            told[str(sections)] = [min(times), statistics.median(times)]
            Detector.shutdown()
            dist.barrier()
            Detector.initialize()

    for sections, (best, middle) in in_ranks(body).items():
        print(
            f"report, 4 ranks, {sections:>4} sections          {middle:8.2f} ms (best {best:.2f})"
        )


def overhead() -> None:
    """Steps of 10 ms with five sections and a report every 100 steps, against bare ones."""
    per_step = steps_of(10.0)
    Detector.initialize(gather_on_rank0=False, report_time_interval=1.0)

    def bare() -> None:
        for _part in range(5):
            work(per_step // 5)

    def watched() -> None:
        for part in range(5):
            with Detector.detection_section(f"part {part}"):
                work(per_step // 5)
        Detector.generate_report_if_interval_elapsed()

    times: dict[str, list[float]] = {"bare": [], "watched": []}
    for _ in range(600):
        for name, step in (("bare", bare), ("watched", watched)):
            started = time.thread_time_ns()
            step()
            times[name].append((time.thread_time_ns() - started) / 1e6)
    Detector.shutdown()
    usual = {name: statistics.median(found) for name, found in times.items()}
    mean = {name: statistics.fmean(sorted(found)[:-6]) for name, found in times.items()}
    share = usual["watched"] / usual["bare"] - 1
    print(
        f"overhead of a step of {usual['bare']:.1f} ms           {share:8.2%} of the median, "
        f"{mean['watched'] / mean['bare'] - 1:.2%} of the mean"
    )


def steps_of(milliseconds: float) -> int:
    """Multiplications that take so long on a core of its own."""
    work(200)
    started = time.thread_time_ns()
    work(500)
    return round(milliseconds * 500 / ((time.thread_time_ns() - started) / 1e6))


def alarms_of_identical_ranks(windows: int, steps: int) -> list[list[float]]:
    """Windows of a real job whose ranks do the same; gives each rank's own timings."""
    amount = steps_of(2.0)

    def body(rank: int, told: dict[str, Any]) -> None:
        layer = torch.nn.Linear(64, 64)
        alarms = {"slow": 0, "below": 0, "starved": 0}
        own: list[float] = []
        for _ in range(windows):
            for _ in range(steps):
                started = time.perf_counter()
                with Detector.detection_section("compute"):
                    work(amount)
                own.append((time.perf_counter() - started) * 1e3)
                with Detector.detection_section("empty"):
                    pass
                with Detector.detection_section("reduce"):
                    dist.all_reduce(layer.weight.data)
            report = Detector.generate_report()
            if report is not None:
                found = report.identify_stragglers()
                alarms["slow"] += bool(report.slow_sections())
                alarms["below"] += bool(
                    found["straggler_sections_relative"] or found["straggler_sections_individual"]
                )
                alarms["starved"] += report.starvation is not None
                assert not report.missing
        gathered: list[Any] = [None] * RANKS
        dist.all_gather_object(gathered, own)
        told.update(alarms=alarms, timings=gathered)

    found = in_ranks(body)
    alarms = found["alarms"]
    print(
        f"identical ranks, {windows} windows of {steps} steps: {alarms['slow']} with a slow rank, "
        f"{alarms['below']} with a score below its threshold, {alarms['starved']} starved",
        flush=True,
    )
    timings: list[list[float]] = found["timings"]
    return timings


def detection(noise: list[list[float]], seeds: int = 100, healthy: int = 500) -> None:
    """Rank 2 of four slowed by a factor, from 50 steps of 10 ms of recorded work each.

    All ranks' timings of a window are of the same steps, as those of a job are: the
    machine's speed drifts, and does so for all of them.
    """
    per_step = steps_of(10.0)
    alone: list[list[float]] = [[] for _ in range(RANKS)]
    for _ in range(1000):
        for in_turn in alone:
            started = time.perf_counter()
            work(per_step)
            in_turn.append((time.perf_counter() - started) * 1e3)
    usual = statistics.median(timing for of_rank in noise for timing in of_rank)
    relative = [[timing / usual for timing in of_rank] for of_rank in noise]
    for name, noisy in (("one rank per core", False), ("with the noise of 4 ranks", True)):
        for factor in (1.3, 1.1, 1.0):
            windows = seeds if factor > 1 else healthy
            found = wrong = 0
            for seed in range(windows):
                generator = random.Random(seed)
                timings = block(generator, alone)
                if noisy:
                    laid = block(generator, relative)
                    timings = [list(map(mul, *both)) for both in zip(timings, laid, strict=True)]
                timings[2] = [factor * timing for timing in timings[2]]
                summaries = {}
                for rank, of_rank in enumerate(timings):
                    summary = summarize(of_rank)
                    assert summary is not None
                    summaries[rank] = summary
                unexplained_sinks = set(slow_ranks(summaries, SLOW_FACTOR))
                found += 2 in unexplained_sinks
                wrong += bool(unexplained_sinks - {2})
            print(
                f"rank at {factor} x, {WINDOW} steps, {name:<26} {found:3d} of {windows} windows, "
                f"another rank accused in {wrong}"
            )


def block(generator: random.Random, by_rank: list[list[float]]) -> list[list[float]]:
    """Consecutive timings, the same steps of all ranks: what comes in clusters stays so."""
    first = generator.randrange(len(by_rank[0]) - WINDOW)
    return [of_rank[first : first + WINDOW] for of_rank in by_rank]


def main() -> None:
    parser = argparse.ArgumentParser()
    # Ranks are forked first: what is measured in this process itself starts threads.
    names = ("report", "detection", "section", "overhead")
    parser.add_argument("--only", choices=names, help="measure this alone")
    parser.add_argument("--windows", type=int, default=500, help="of identical ranks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [options.only] if options.only else names
    if "report" in chosen:
        report_of_ranks()
    if "detection" in chosen:
        detection(alarms_of_identical_ranks(options.windows, WINDOW))
    if "section" in chosen:
        section_call()
    if "overhead" in chosen:
        overhead()


if __name__ == "__main__":
    main()
