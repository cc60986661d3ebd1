"""Windows as they travel between ranks: text, and mostly numbers.

A number of the window, a line of JSON with the names, and all numbers as base64: a report
of many sections packs and unpacks thousands of them, for which JSON takes ten times as
long.  Ranks of one job run one version, so nothing here lasts.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice

from hanglab.recorder.scores import InputWait, Summary
from hanglab.recorder.straggler.window import SectionWindow, Window

#: What of a summary is a plain number or unknown; the stretches follow, as many as it says.
_PLAIN = Summary._fields.index("stretch_medians")
#: In place of a summary that there is not.
_NONE = -1.0


def pack(window: Window) -> bytes:
    """ASCII; ``wall`` times stay with the rank."""
    numbers: list[float] = []
    for section in window.sections.values():
        numbers += (section.communication_ms, section.input_ms, _told(section.individual))
        for summary in (section.work, section.device, section.best):
            _put(numbers, summary)
    for kernel in window.kernels.values():
        _put(numbers, kernel)
    head = {
        "rank": window.rank,
        "node": window.node,
        "span_ms": window.span_ms,
        "sections": [(name, section.measure) for name, section in window.sections.items()],
        "kernels": list(window.kernels),
        "gpu_individual": window.gpu_individual,
        "input": None if window.input is None else asdict(window.input),
        "kept_ms": window.kept_ms,
        "warnings": window.warnings,
    }
    return b"\n".join(
        (
            b"%d" % window.number,
            json.dumps(head, separators=(",", ":")).encode("ascii"),
            base64.b64encode(struct.pack(f"<{len(numbers)}d", *numbers)),
        )
    )


def number_of(data: bytes) -> int:
    """Number of the window, without unpacking it.  Raises ValueError for anything else."""
    return int(data[: data.find(b"\n")])


def unpack(data: bytes) -> Window:
    """Raises ValueError, TypeError or KeyError for what another version wrote."""
    number, head, packed = data.split(b"\n")
    told = json.loads(head)
    raw = base64.b64decode(packed, validate=True)
    if len(raw) % 8:
        raise ValueError("the numbers of a window are cut off")
    numbers = iter(struct.unpack(f"<{len(raw) // 8}d", raw))
    sections = {}
    for name, measure in told["sections"]:
        communication_ms, input_ms, individual = islice(numbers, 3)
        sections[str(name)] = SectionWindow(
            communication_ms=communication_ms,
            input_ms=input_ms,
            individual=_known(individual),
            measure=measure,
            work=_take(numbers),
            device=_take(numbers),
            best=_take(numbers),
        )
    kernels = {}
    for name in told["kernels"]:
        kernel = _take(numbers)
        if kernel is not None:
            kernels[str(name)] = kernel
    return Window(
        number=int(number),
        rank=int(told["rank"]),
        node=str(told["node"]),
        span_ms=float(told["span_ms"]),
        sections=sections,
        kernels=kernels,
        gpu_individual=told["gpu_individual"],
        input=None if told["input"] is None else InputWait(**told["input"]),
        kept_ms=told["kept_ms"],
        warnings=tuple(told["warnings"]),
    )


def _put(numbers: list[float], summary: Summary | None) -> None:
    if summary is None:
        numbers.append(_NONE)
        return
    *plain, medians, means = summary
    numbers.append(len(medians))
    numbers += [math.nan if value is None else value for value in plain]
    numbers += medians
    numbers += means


def _take(numbers: Iterator[float]) -> Summary | None:
    stretches = next(numbers, math.nan)
    if stretches == _NONE:
        return None
    values = list(islice(numbers, _PLAIN + 2 * int(stretches)))
    middle = _PLAIN + int(stretches)
    count, minimum, maximum, median, mean, deviation, tail, error, trimmed, *rest = values[:_PLAIN]
    trimmed_error, stalls, stalled_ms = rest
    return Summary(
        int(count),
        minimum,
        maximum,
        median,
        mean,
        _known(deviation),
        tail,
        _known(error),
        trimmed,
        _known(trimmed_error),
        int(stalls),
        stalled_ms,
        tuple(values[_PLAIN:middle]),
        tuple(values[middle:]),
    )


def _told(value: float | None) -> float:
    return math.nan if value is None else value


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
