"""Ranks that the kernel keeps: for how long, in which call, and what for."""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.wait_channels import Channel, channel_of, is_gpu_device
from hanglab.recorder.case.host_records import SleepingThread


def main_sleep(facts: CaseFacts, view: RankView) -> SleepingThread | None:
    """The rank's main thread where it slept in the kernel at the capture; None if it did not."""
    load = facts.load_of(view.rank)
    if load is None:
        return None
    return next((thread for thread in load.sleeping if thread.tid == load.pid), None)


def is_uninterruptible(view: RankView) -> bool:
    """True if it was in state D whenever somebody looked at the capture, twice at the least.

    Sound processes pass through that state for moments.
    """
    states = [s.state for s in view.processes if s.kind == "rank" and s.capture]
    return len(states) >= 2 and all(state == "D" for state in states)


def wait_channels(view: RankView, main: SleepingThread | None) -> set[Channel]:
    """Wait channel that it had in all samples, as far as the kernel's functions tell."""
    names = {s.wchan for s in view.processes if s.kind == "rank" and s.capture}
    if main is not None:
        names.add(main.wchan)
    return {channel for name in names if (channel := channel_of(name)) is not None}


def in_gpu_driver(view: RankView, main: SleepingThread | None) -> bool:
    """True if it sleeps uninterruptibly in a GPU's driver: by the function, or the call's file."""
    if not is_uninterruptible(view):
        return False
    if main is not None and is_gpu_device(main.target):
        return True
    return Channel.GPU_DRIVER in wait_channels(view, main)
