"""Processor time of reading dumps that other picklers than torch's wrote, beside ``pickle.load``.

Dumps of 2,000 entries a rank are written by torch's pickler and by Python's own, of
protocols 2 to 5: with texts and lists shared between entries, as a tool leaves them
that keeps entries itself, and unshared, as one that has read them from JSON.  Both
readers run by turns in one process; the figure is the median of the ratios of their times.

A second table has what each way of decoding gains: the same files with the faster ways
left out, by turns, with nothing known of the files of the round before.
"""

from __future__ import annotations

import gc
import json
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from analyzer_dumps import write_dumps

from hanglab.analyzer.flight_recorder import formats
from hanglab.analyzer.flight_recorder.formats import read_dump
from hanglab.analyzer.flight_recorder.pattern_reader import Likenesses

RANKS = 24
ROUNDS = 15


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hanglab-bench-") as folder:
        dumps = Path(folder) / "dumps"
        write_dumps(dumps, "3d", 64, culprit=3)
        torch = [path.read_bytes() for path in sorted(dumps.iterdir())[:RANKS]]
    shared = [pickle.loads(data) for data in torch]
    unshared = [json.loads(json.dumps(value)) for value in shared]
    forms = {"torch": torch}
    for protocol in (2, 3, 4, 5):
        forms[f"protocol {protocol}, shared"] = [pickle.dumps(v, protocol) for v in shared]
        forms[f"protocol {protocol}, unshared"] = [pickle.dumps(v, protocol) for v in unshared]
    gc.disable()
    print("| written as | MB a file | hanglab, ms a file | pickle.load | ratio |")
    print("|---|---|---|---|---|")
    for name, files in forms.items():
        times = _by_turns(_reading_again(files), _loading(files))
        size = sum(map(len, files)) / len(files) / 1e6
        each = [median(one) / len(files) * 1e3 for one in times]
        print(f"| {name} | {size:.2f} | {each[0]:.2f} | {each[1]:.2f} | {_ratio(*times):.2f} |")

    print()
    print("| written as | all ways | without learned patterns | without kinds of entries, too |")
    print("|---|---|---|---|")
    for name in ("torch", "protocol 2, shared", "protocol 5, unshared"):
        times = _by_turns(*(_reading(forms[name], way) for way in range(3)), _loading(forms[name]))
        ratios = " | ".join(f"{_ratio(one, times[-1]):.2f}" for one in times[:-1])
        print(f"| {name} | {ratios} |")


class _Forgetful(Likenesses):
    """Learns nothing."""

    def recall(self, *_: object) -> None:
        return None

    def learn(self, *_: object) -> None:
        return None


def _reading_again(files: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        for data in files:
            read_dump(data, rank=0, source="", contained=True)

    return work


@contextmanager
def _left_out(ways: int) -> Iterator[None]:
    """Leave the first of learned patterns and kinds of entries out."""
    kept = formats._LIKENESSES, formats.thin
    try:
        formats._LIKENESSES = Likenesses() if ways == 0 else _Forgetful()
        if ways > 1:
            formats.thin = lambda data: None
        yield
    finally:
        formats._LIKENESSES, formats.thin = kept


def _reading(files: list[bytes], ways: int) -> Callable[[], None]:
    def work() -> None:
        with _left_out(ways):
            for data in files:
                read_dump(data, rank=0, source="", contained=True)

    return work


def _loading(files: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        for data in files:
            pickle.loads(data)

    return work


def _by_turns(*works: Callable[[], object]) -> list[list[float]]:
    """The processor time of each in each round, in seconds."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for mine, work in zip(times, works, strict=True):
            begun = time.process_time()
            work()
            mine.append(time.process_time() - begun)
    return times


def _ratio(times: list[float], others: list[float]) -> float:
    """The median of what each round gives: both ran one after the other."""
    return median(one / other for one, other in zip(times, others, strict=True))


if __name__ == "__main__":
    main()
