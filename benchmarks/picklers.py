"""Processor time of reading dumps that other picklers than torch's wrote, beside ``pickle.load``.

Dumps of 2,000 entries a rank are written by torch's pickler and by Python's own, of
protocols 2 to 5: with texts and lists shared between entries, as a tool leaves them
that keeps entries itself, and unshared, as one that has read them from JSON.  Both
readers run by turns in one process; the figure is the ratio of their best times.
"""

from __future__ import annotations

import gc
import json
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from analyzer_dumps import write_dumps

from hanglab.analyzer.flight_recorder.formats import read_dump

RANKS = 24
ROUNDS = 7


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
        ours, plain = _by_turns(
            lambda files=files: [
                read_dump(data, rank=0, source="", contained=True) for data in files
            ],
            lambda files=files: [pickle.loads(data) for data in files],
        )
        size = sum(map(len, files)) / len(files) / 1e6
        each = [seconds / len(files) * 1e3 for seconds in (ours, plain)]
        print(f"| {name} | {size:.2f} | {each[0]:.2f} | {each[1]:.2f} | {ours / plain:.2f} |")


def _by_turns(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """The least processor time of each, in seconds."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for number, work in enumerate((one, other)):
            begun = time.process_time()
            work()
            best[number] = min(best[number], time.process_time() - begun)
    return best[0], best[1]


if __name__ == "__main__":
    main()
