"""The windows of a Case: how long each rank worked in each section, over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hanglab.harness.errors import HanglabError
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.case.reader import CaseReader, RankCase
from hanglab.recorder.case.records import StragglerLine, TimingSummary
from hanglab.recorder.slowness import (
    InputWait,
    RunQueue,
    Slowness,
    Starvation,
    Summary,
    judge_input,
    median,
    relative_scores,
    slow_ranks,
    summarize,
)
from hanglab.recorder.slowness.thresholds import SLOW_FACTOR

#: Where no detector made windows, the recorded time is cut into so many at most.
CUT = 12
#: Each has about so many entries of the section that is entered most, or more.
FEWEST = 20


class NothingToCompare(HanglabError):
    """The Case holds no section of any rank."""

    advice = (
        "Mark sections with hanglab.recorder.section(...) or with "
        "hanglab.recorder.straggler.Detector, and record the job again."
    )


@dataclass(frozen=True)
class StragglerWindow:
    """One stretch of the job: section -> rank -> the rank's own work, in milliseconds."""

    number: int
    #: Seconds since the job's first window, at its end.
    at_s: float
    work: Mapping[str, Mapping[int, Summary]]
    input: Mapping[int, InputWait] = field(default_factory=dict)
    #: Rank -> its waits for a processor.
    run_queues: Mapping[int, RunQueue] = field(default_factory=dict)

    def scores(self, section: str) -> dict[int, float | None]:
        """Rank -> score against the fastest rank."""
        return relative_scores({rank: s.median for rank, s in self.work[section].items()})

    def slow(self) -> dict[tuple[str, int], Slowness]:
        """(section, rank) of the ranks that are slower than their peers."""
        return {
            (section, rank): slowness
            for section, by_rank in self.work.items()
            for rank, slowness in slow_ranks(
                by_rank, SLOW_FACTOR, run_queues=self.run_queues
            ).items()
        }


@dataclass(frozen=True)
class StragglerHistory:
    """All windows of a job, oldest first."""

    ranks: tuple[int, ...]
    windows: tuple[StragglerWindow, ...]
    #: ``straggler.jsonl`` where the job ran a detector, else ``progress.bin``.
    source: str
    #: What the detector said of itself and of ranks that did not report.
    remarks: tuple[str, ...] = ()

    @property
    def sections(self) -> list[str]:
        """Sections in the order in which they take most time."""
        total: dict[str, float] = {}
        for window in self.windows:
            for section, by_rank in window.work.items():
                spent = sum(s.mean * s.count for s in by_rank.values())
                total[section] = total.get(section, 0.0) + spent
        return sorted(total, key=lambda section: -total[section])

    def medians(self, section: str) -> dict[int, float]:
        """Rank -> the middle of its windows' medians, in milliseconds."""
        by_rank: dict[int, list[float]] = {}
        for window in self.windows:
            for rank, summary in window.work.get(section, {}).items():
                by_rank.setdefault(rank, []).append(summary.median)
        return {rank: median(values) for rank, values in by_rank.items()}

    def slow(self) -> dict[tuple[str, int], int]:
        """(section, rank) -> in how many windows the rank was slow there."""
        counts: dict[tuple[str, int], int] = {}
        for window in self.windows:
            for key in window.slow():
                counts[key] = counts.get(key, 0) + 1
        return counts

    def input_shares(self) -> dict[int, float]:
        """Rank -> the middle of its windows' shares spent waiting for input."""
        by_rank: dict[int, list[float]] = {}
        for window in self.windows:
            for rank, wait in window.input.items():
                by_rank.setdefault(rank, []).append(wait.share)
        return {rank: median(values) for rank, values in by_rank.items()}

    def starvation(self) -> Starvation | None:
        """Starvation of the window that lost most to its input; None if none lost much."""
        found = [s for w in self.windows if (s := judge_input(w.input)) is not None]
        return max(found, key=lambda s: s.share, default=None)


def load_history(path: Path) -> StragglerHistory:
    """Windows of a Case: the detector's, else cut out of the recorded sections.

    Raises NothingToCompare where there is no section, NotACase where there is no Case.
    """
    case = CaseReader(path)
    lines = {rank.rank: rank.read(files.STRAGGLER) for rank in case.ranks}
    history = _from_detector(lines) or _from_progress(case.ranks)
    if history is None:
        raise NothingToCompare(f"{path} holds no section of any rank.")
    return history


def _from_detector(lines: Mapping[int, list[StragglerLine]]) -> StragglerHistory | None:
    by_number: dict[int, dict[int, StragglerLine]] = {}
    remarks: list[str] = []
    for rank, of_rank in lines.items():
        for line in of_rank:
            if line.kind == "window":
                by_number.setdefault(line.number, {})[rank] = line
                remarks += [f"rank {rank}: {text}" for text in line.warnings]
            else:
                remarks += [f"report {line.number}: {missing.text}" for missing in line.missing]
    if not any(line.sections for of_window in by_number.values() for line in of_window.values()):
        return None
    first = min(line.at.wall_ns for of_window in by_number.values() for line in of_window.values())
    windows = []
    for number, by_rank in sorted(by_number.items()):
        work: dict[str, dict[int, Summary]] = {}
        for rank, line in sorted(by_rank.items()):
            for name, section in line.sections.items():
                if section.work is not None:
                    work.setdefault(name, {})[rank] = _summary(section.work)
        windows.append(
            StragglerWindow(
                number,
                (max(line.at.wall_ns for line in by_rank.values()) - first) / 1e9,
                work,
                {
                    rank: InputWait(line.input.share, line.input.busy)
                    for rank, line in by_rank.items()
                    if line.input is not None
                },
                {
                    r: RunQueue(line.run_queue_delay_ms, line.ran_ms)
                    for r, line in by_rank.items()
                    if line.run_queue_delay_ms is not None
                },
            )
        )
    return StragglerHistory(
        tuple(sorted(lines)), tuple(windows), files.STRAGGLER.name, tuple(dict.fromkeys(remarks))
    )


def _summary(timings: TimingSummary) -> Summary:
    return Summary(*msgspec.structs.astuple(timings))


def _from_progress(ranks: Iterable[RankCase]) -> StragglerHistory | None:
    """History by processor time: how much of a section's wall time was waiting is not recorded."""
    found = {r.rank: p for r in ranks if (p := r.read(files.PROGRESS)) is not None}
    plain = {
        rank: [e for e in p.section_events if e.section not in _input_sections(p)]
        for rank, p in found.items()
    }
    events = [event for of_rank in plain.values() for event in of_rank]
    if not events:
        return None
    first = min(event.started_ns for event in events)
    last = max(event.started_ns for event in events)
    entered = max(Counter((r, e.section) for r in plain for e in plain[r]).values())
    cut = max(1, min(CUT, entered // FEWEST))
    timings: list[dict[str, dict[int, list[float]]]] = [{} for _ in range(cut)]
    for rank, of_rank in plain.items():
        for event in of_rank:
            place = cut * (event.started_ns - first) // (last - first + 1)
            timings[place].setdefault(event.section, {}).setdefault(rank, []).append(
                event.cpu_ns / 1e6
            )
    length = (last - first) / 1e9 / cut
    windows = [
        StragglerWindow(number, number * length, {s: _summaries(r) for s, r in sections.items()})
        for number, sections in enumerate(timings, 1)
    ]
    return StragglerHistory(
        tuple(sorted(found)),
        tuple(windows),
        files.PROGRESS.name,
        ("No straggler detector ran in this job: processor time of the recorded sections.",),
    )


def _input_sections(progress: Progress) -> set[str]:
    return {total.section for total in progress.section_totals if total.kind == "input"}


def _summaries(by_rank: Mapping[int, list[float]]) -> dict[int, Summary]:
    found = {rank: summarize(timings) for rank, timings in by_rank.items()}
    return {rank: summary for rank, summary in found.items() if summary is not None}
