"""Windows of one rank: its timings, waits and warnings, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from hanglab.recorder.slowness import InputWait, RunQueue, Summary

#: How a section's own work was told from its waits: wall time less the measured waits;
#: processor time, where C++ waits inside; not at all.
Measure = Literal["wall", "processor", ""]


@dataclass(frozen=True)
class SectionWindow:
    """One section in one window; milliseconds an entry."""

    #: The rank's own work; None where it cannot be told from waiting, or nothing was timed.
    work: Summary | None
    measure: Measure
    #: All of it, waits included; only the rank itself has it.
    wall: Summary | None = None
    #: Means of the waits for other ranks and for input.
    communication_ms: float = 0.0
    input_ms: float = 0.0
    #: Device time of the work launched inside.
    device: Summary | None = None
    #: The best window's work that this rank ever had; None where that is this one.
    best: Summary | None = None
    #: Score against that; None where it is not known.
    individual: float | None = None


@dataclass(frozen=True)
class TimingWindow:
    """Timings of a rank since its last report."""

    number: int
    rank: int
    node: str
    #: Length of the window in milliseconds.
    span_ms: float
    sections: Mapping[str, SectionWindow] = field(default_factory=dict)
    kernels: Mapping[str, Summary] = field(default_factory=dict)
    gpu_individual: float | None = None
    input: InputWait | None = None
    #: Waits for a processor of the thread that reports, by the kernel's count; None where it does
    #: not tell.
    run_queue: RunQueue | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """ASCII, with the summaries as lists in the order of their fields."""
        return json.dumps(
            {
                "number": self.number,
                "rank": self.rank,
                "node": self.node,
                "span_ms": round(self.span_ms, 3),
                "sections": {name: _pack_section(s) for name, s in self.sections.items()},
                "kernels": {name: _pack(s) for name, s in self.kernels.items()},
                "gpu_individual": self.gpu_individual,
                "input": None if self.input is None else asdict(self.input),
                "kept_ms": self.run_queue and self.run_queue.delay_ms,
                "ran_ms": self.run_queue and self.run_queue.ran_ms,
                "warnings": self.warnings,
            },
            separators=(",", ":"),
        ).encode("ascii")


_SUMMARIES = ("work", "device", "best")
_NAMES = tuple(f.name for f in fields(SectionWindow) if f.name != "wall")


def _pack_section(section: SectionWindow) -> dict[str, Any]:
    packed = {name: getattr(section, name) for name in _NAMES}
    for name in _SUMMARIES:
        packed[name] = _pack(packed[name])
    return packed


def _pack(summary: Summary | None) -> list[Any] | None:
    return None if summary is None else list(summary)


@dataclass(frozen=True)
class WaitState:
    """Waits of a rank's threads when nothing had moved in its sections for a while."""

    rank: int
    node: str
    #: Reports it has made.
    windows: int
    #: Seconds since it last entered or left a section.
    quiet_s: float
    #: Open sections, outermost first, with the seconds that they have been open.
    open: tuple[tuple[str, float], ...] = ()
    #: Seconds that it has been waiting for other ranks: in one call, or in a section whose
    #: collectives C++ issues; None where it is in neither.
    communicating_s: float | None = None
    #: Seconds that it has been waiting for a loader's batch; None where it is not.
    reading_s: float | None = None

    def __str__(self) -> str:
        if self.communicating_s is not None:
            return f"it has been waiting for other ranks for {self.communicating_s:.1f} s"
        section = f" in section {self.open[-1][0]!r}" if self.open else ""
        if self.reading_s is not None:
            return f"it has been waiting for its loader{section} for {self.reading_s:.1f} s"
        if self.open:
            return f"it has been{section} for {self.open[-1][1]:.1f} s"
        return f"it is in no section, {self.quiet_s:.1f} s after the last"

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> WaitState:
        """Raises ValueError, TypeError or KeyError for what another version wrote."""
        values = json.loads(data)
        values["open"] = tuple((str(name), float(s)) for name, s in values["open"])
        return cls(**values)
