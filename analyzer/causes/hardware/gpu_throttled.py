"""``gpu_throttled``: GPUs whose clocks heat or power holds down, and a job that waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from hanglab.analyzer.causes.thresholds import FEWEST_GPU_SAMPLES, SLOWER_CLOCK, THROTTLED_SAMPLES
from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.gpus import GpuHistory, gpus_of
from hanglab.analyzer.proposal import Proposal, detector_of, propose
from hanglab.analyzer.strengths import CONFIRMED
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.slowness.thresholds import LOSS_SHARE

#: NVML's reasons that are a fault of the machine; a cap at the rated power, or clocks that
#: somebody set, are none.
_HELD_DOWN = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake", "sw_thermal_slowdown"}
)


@detector_of(Cause.GPU_THROTTLED)
def gpu_throttled(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks whose GPU was held down most of the time, at a clock below its peers'."""
    every = [gpu for host in facts.hosts.values() for gpu in gpus_of(host) if gpu.ranks]
    for gpu in every:
        reasons = _reasons(gpu)
        ranks = [rank for rank in gpu.ranks if rank in facts.ranks]
        clock, usual = _clock(gpu), _usual_clock(gpu, every)
        if not reasons or not ranks or clock is None or usual is None:
            continue
        lost = 1 - clock / usual
        share = min(lost, _cost(facts, ranks, lost))
        if clock > SLOWER_CLOCK * usual or share < LOSS_SHARE:
            continue
        words = (
            f"GPU {gpu.last.index} ran at {clock:.0f} MHz of {usual:.0f} MHz "
            f"({', '.join(reasons)})"
            + (f" at {gpu.last.temperature} degrees" if gpu.last.temperature else "")
        )
        yield propose(
            facts,
            Cause.GPU_THROTTLED,
            ranks,
            status=Status.SLOW,
            confidence=CONFIRMED,
            summary=f"The GPU of {name_ranks(ranks)} is held down; the job waits for it: {words}.",
            evidence=[Evidence("host", rank, words) for rank in ranks],
            effect=Effect(section=None, ms_per_step=0.0, share_of_step=round(share, 4)),
        )


def _reasons(gpu: GpuHistory) -> list[str]:
    """Reasons that stood in most samples."""
    held = [sample for sample in gpu.samples if _HELD_DOWN & set(sample.throttled)]
    if len(gpu.samples) < FEWEST_GPU_SAMPLES or len(held) < THROTTLED_SAMPLES * len(gpu.samples):
        return []
    return sorted({reason for sample in held for reason in sample.throttled} & _HELD_DOWN)


def _clock(gpu: GpuHistory) -> float | None:
    clocks = [sample.clock_mhz for sample in gpu.samples if sample.clock_mhz]
    return median(clocks) if clocks else None


def _usual_clock(gpu: GpuHistory, every: list[GpuHistory]) -> float | None:
    """Median clock of the job's other GPUs of its kind that are not held down; else its limit."""
    others = [
        clock
        for other in every
        if other is not gpu and other.last.name == gpu.last.name and not _reasons(other)
        if (clock := _clock(other)) is not None
    ]
    return median(others) if others else gpu.last.clock_limit_mhz


def _cost(facts: CaseFacts, ranks: list[int], lost: float) -> float:
    """Share of the time that the job loses: that of peers who wait, or everybody's own."""
    if set(ranks) == set(facts.ranks):
        return lost
    found = arrivals(facts)
    return sum(found.share(rank) for rank in ranks) if found is not None else 0.0
