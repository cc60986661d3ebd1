"""Busy time of this rank's loader workers."""

from __future__ import annotations

import functools

import hanglab.recorder as recorder
from hanglab.recorder.case import layout
from hanglab.recorder.rank.batch_fetches import FetchWatch
from hanglab.recorder.rank.imports import AfterImport
from hanglab.recorder.rank.private_progress import private_progress
from hanglab.recorder.rank.progress_file import ProgressFile


@functools.lru_cache(maxsize=1)
def _watched() -> ProgressFile:
    own = private_progress()
    AfterImport().add("torch.utils.data._utils.fetch", FetchWatch(own).install)
    return own


def _progress() -> ProgressFile:
    """Memory in which forked workers note their work: the recorder's file, else our own."""
    active = recorder._active
    return _watched() if active is None else active._progress


class LoaderTimes:
    """Reads the workers' times, window by window.

    Workers that were forked before there was a detector, and spawned ones, are not seen.
    """

    def __init__(self) -> None:
        self._progress = _progress()
        self._before: dict[int, int] = {}

    def busy(self, span_ms: float, keep: bool) -> float | None:
        """Share of the window in which the workers made batches, each taken for one; None if
        no worker did."""
        slots = self._progress.slots
        first = self._progress.at[layout.FETCHES] // 8
        width = layout.FETCHES.record // 8
        worked = {
            worker: slots[first + worker * width + 1]
            for worker in range(layout.FETCHES.capacity)
            if slots[first + worker * width]
        }
        spent = [wall - self._before.get(worker, 0) for worker, wall in worked.items()]
        spent = [wall for wall in spent if wall > 0]
        if not keep:
            self._before = worked
        if not spent:
            return None
        return min(1.0, sum(spent) / len(spent) / 1e6 / span_ms)
