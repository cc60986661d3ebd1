"""Windows as they travel between ranks: a little text, and mostly numbers.

A number of the window, a line of JSON with the names, and all numbers as they lie in memory:
a report of many sections packs and unpacks thousands of them.  Ranks of one job run one version, so
nothing here lasts.  Nothing imports this module before there is a window; see
slowness/column_summaries.py.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from hanglab.recorder.slowness import InputWait, RunQueue
from hanglab.recorder.slowness.column_summaries import (
    COUNT,
    SHORT,
    WIDTH,
    Rows,
    no_summaries,
    row_of,
    summary_of,
)
from hanglab.recorder.straggler.table import SectionTable
from hanglab.recorder.straggler.window import TimingWindow

#: What sets of summaries a table sends, in this order: ``wall`` times stay with the rank.
_SENT = ("work", "device", "best")
_NUMBER = np.dtype("<f8")


def pack(window: TimingWindow) -> bytes:
    """Without the ``wall`` times."""
    table = SectionTable.of(window.sections)
    numbers = [table.means]
    sent = []
    for name in _SENT:
        rows: Rows = getattr(table, name)
        there = ~np.isnan(rows[:, COUNT])
        if not there.all():
            rows = rows[there]
        width = WIDTH if rows[:, SHORT - 1].any() else SHORT
        sent.append((len(rows), width, np.packbits(there).tobytes().hex()))
        numbers.append(rows[:, :width])
    numbers.append(np.array([row_of(kernel) for kernel in window.kernels.values()], np.float64))
    head = {
        "rank": window.rank,
        "node": window.node,
        "span_ms": window.span_ms,
        "sections": table.names,
        "measures": table.measures,
        "sent": sent,
        "kernels": list(window.kernels),
        "gpu_individual": window.gpu_individual,
        "input": None if window.input is None else asdict(window.input),
        "run_queue": window.run_queue,
        "warnings": window.warnings,
    }
    return b"".join(
        (
            b"%d\n" % window.number,
            json.dumps(head, separators=(",", ":")).encode("ascii"),
            b"\n",
            *[n.astype(_NUMBER, copy=False).tobytes() for n in numbers],
        )
    )


def number_of(data: bytes) -> int:
    """Number of the window, without unpacking it.  Raises ValueError for anything else."""
    return int(data[: data.find(b"\n")])


def unpack(data: bytes) -> TimingWindow:
    """Raises ValueError, TypeError or KeyError for what another version wrote."""
    number, text, packed = data.split(b"\n", 2)
    head = json.loads(text)
    numbers = np.frombuffer(packed, _NUMBER).astype(np.float64)
    used = 0

    def take(count: int, width: int) -> NDArray[np.float64]:
        nonlocal used
        first, used = used, used + count * width
        return numbers[first:used].reshape(count, width)

    names = [str(name) for name in head["sections"]]
    means = take(len(names), 3)
    summaries = {}
    for name, (count, width, there) in zip(_SENT, head["sent"], strict=True):
        rows = take(count, width)
        if (count, width) != (len(names), WIDTH):
            some, rows = rows, no_summaries(len(names))
            bits = np.unpackbits(np.frombuffer(bytes.fromhex(there), np.uint8), count=len(names))
            rows[bits.astype(bool), :width] = some
        summaries[name] = rows
    kernels = take(len(head["kernels"]), WIDTH).tolist()
    if used != len(numbers):
        raise ValueError("a window holds more numbers than it says")
    return TimingWindow(
        number=int(number),
        rank=int(head["rank"]),
        node=str(head["node"]),
        span_ms=float(head["span_ms"]),
        sections=SectionTable(
            names, head["measures"], means, wall=no_summaries(len(names)), **summaries
        ),
        kernels={
            str(name): summary
            for name, row in zip(head["kernels"], kernels, strict=True)
            if (summary := summary_of(row)) is not None
        },
        gpu_individual=head["gpu_individual"],
        input=None if head["input"] is None else InputWait(**head["input"]),
        run_queue=None if head["run_queue"] is None else RunQueue(*head["run_queue"]),
        warnings=tuple(head["warnings"]),
    )
