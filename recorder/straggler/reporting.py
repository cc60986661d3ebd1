"""The report of one window: scores of the ranks, who is slow, who does not answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypedDict

from hanglab.recorder.slowness import (
    RunQueue,
    Slowness,
    Starvation,
    Statistic,
    Summary,
    judge_input,
    median,
    slow_ranks,
    slow_without_delay,
    slower_than,
)
from hanglab.recorder.slowness.thresholds import (
    FLOOR_MS,
    LIKELY_SLOWED,
    SCORE_THRESHOLD,
    SLOW_FACTOR,
)
from hanglab.recorder.straggler.window import TimingWindow, WaitState

Statistics = Mapping[Statistic, "float | None"]


@dataclass(frozen=True)
class StragglerId:
    """A slow rank and its node."""

    rank: int
    node: str


class Stragglers(TypedDict):
    """Ranks below the thresholds, by the kind of score; sections by their name."""

    straggler_gpus_relative: set[StragglerId]
    straggler_gpus_individual: set[StragglerId]
    straggler_sections_relative: dict[str, set[StragglerId]]
    straggler_sections_individual: dict[str, set[StragglerId]]


@dataclass(frozen=True)
class SlowSection:
    """A rank that is slower than its peers in a section, again and again."""

    rank: int
    node: str
    section: str
    slowness: Slowness


@dataclass(frozen=True)
class Missing:
    """A rank whose timings of this window did not come, or that keeps a job standing."""

    rank: int
    #: Seconds since its last window came, or since the detector began to wait for the first.
    since_s: float
    #: Number of its latest window, 0 for none.
    last_window: int
    #: What it was last known to do; None where not even its detector's thread answers.
    standing: WaitState | None = None

    def __str__(self) -> str:
        text = f"rank {self.rank} has not reported for {self.since_s:.1f} s"
        if self.standing is None:
            return text + ", nor said where it stands"
        return f"{text}: {self.standing}"


@dataclass(frozen=True)
class Report:
    """Scores from 0 (worst) to 1 (best): reference time over own time, by medians.

    Relative scores compare with the fastest rank, individual ones with the rank's
    own past.  None is unknown.  With ``gather_on_rank0`` rank 0's report holds all
    ranks, else each rank's its own.

    The first ten fields are those of NVIDIA's report.
    """

    gpu_relative_perf_scores: Mapping[int, float | None]
    #: Section -> rank -> score of the rank's own work, its waits left out.
    section_relative_perf_scores: Mapping[str, Mapping[int, float | None]]
    gpu_individual_perf_scores: Mapping[int, float | None]
    section_individual_perf_scores: Mapping[str, Mapping[int, float | None]]
    rank_to_node: Mapping[int, str]
    #: This rank's sections and kernels, milliseconds, waits included.
    local_section_summaries: Mapping[str, Statistics]
    local_kernel_summaries: Mapping[str, Statistics]
    #: Milliseconds that the report took.
    generate_report_elapsed_time: float
    gather_on_rank0: bool
    rank: int | None
    #: Everything known of this window, by rank.
    windows: Mapping[int, TimingWindow] = field(default_factory=dict)
    #: Who did not report; of a report that nobody asked for, whom the others wait for.
    missing: Mapping[int, Missing] = field(default_factory=dict)
    #: What the detector itself could not do, and sections that were never entered.
    warnings: tuple[str, ...] = ()
    #: True where the detector made the report by itself, since nothing moved any more.
    unasked: bool = False

    @property
    def number(self) -> int:
        """Number of the window, from 1."""
        return max((window.number for window in self.windows.values()), default=0)

    def work(self, section: str) -> dict[int, Summary]:
        """Rank -> summary of the rank's own work in a section, where it is known."""
        return {
            rank: found.work
            for rank, window in self.windows.items()
            if (found := window.sections.get(section)) is not None and found.work is not None
        }

    @cached_property
    def run_queues(self) -> dict[int, RunQueue]:
        """Rank -> its waits for a processor in the window, where known."""
        return {r: w.run_queue for r, w in self.windows.items() if w.run_queue is not None}

    @cached_property
    def starvation(self) -> Starvation | None:
        """Time that the job loses to its input; None if little."""
        return judge_input(
            {rank: w.input for rank, w in self.windows.items() if w.input is not None}
        )

    def slow_sections(
        self, factor: float = SLOW_FACTOR, floor_ms: float = FLOOR_MS
    ) -> list[SlowSection]:
        """Ranks that work more than ``factor`` times as long as their peers, again and again.

        Median, mean and stalls of the rank's own work count; a difference below
        ``floor_ms`` an entry, or within the noise, does not, nor what a rank waited for a
        processor beyond its peers.  Sections that hold a wait for input are left out
        where input is what the job lacks.
        """
        found = []
        for section in sorted({name for w in self.windows.values() for name in w.sections}):
            if self.starvation is not None and self._reads_input(section):
                continue
            slow = slow_ranks(self.work(section), factor, floor_ms, self.run_queues)
            for rank, slowness in slow.items():
                found.append(SlowSection(rank, self.rank_to_node[rank], section, slowness))
        return found

    def identify_stragglers(
        self,
        gpu_rel_threshold: float = SCORE_THRESHOLD,
        section_rel_threshold: float = SCORE_THRESHOLD,
        gpu_indiv_threshold: float = SCORE_THRESHOLD,
        section_indiv_threshold: float = SCORE_THRESHOLD,
        *,
        floor_ms: float = FLOOR_MS,
    ) -> Stragglers:
        """Ranks whose scores are below the thresholds, strictly.

        A section's score counts only if the medians lie ``floor_ms`` apart and
        further than the window's noise; an unknown score never does.  An individual
        score is measured by the middle of the other ranks', as far as they are known: a
        machine whose speed drifts makes no stragglers of all of them.
        """
        relative: dict[str, set[StragglerId]] = {}
        individual: dict[str, set[StragglerId]] = {}
        for section, scores in self.section_relative_perf_scores.items():
            work = self.work(section)
            fastest = min(work, key=lambda r: work[r].median, default=0)
            for rank, score in scores.items():
                own = work.get(rank)
                if own is None or not _below(score, section_rel_threshold):
                    continue
                factor = 1 / section_rel_threshold
                slowness = slower_than(own, work[fastest], factor, floor_ms, at_once=True)
                queue, other = self.run_queues.get(rank), self.run_queues.get(fastest)
                others = [] if other is None else [other]
                if slowness is not None and slow_without_delay(
                    slowness, own.count, queue, others, factor
                ):
                    relative.setdefault(section, set()).add(self._id(rank))
        for section, scores in self.section_individual_perf_scores.items():
            for rank, score in scores.items():
                window = self.windows.get(rank)
                found = window.sections.get(section) if window is not None else None
                if found is None or found.work is None or found.best is None:
                    continue  # unknown, or never better than now
                beyond_peers = None if score is None else score / self._peers_score(section, rank)
                if _below(beyond_peers, section_indiv_threshold) and slower_than(
                    found.work, found.best, 1 / section_indiv_threshold, floor_ms
                ):
                    individual.setdefault(section, set()).add(self._id(rank))
        return {
            "straggler_gpus_relative": self._ids(self.gpu_relative_perf_scores, gpu_rel_threshold),
            "straggler_gpus_individual": self._ids(
                self.gpu_individual_perf_scores, gpu_indiv_threshold
            ),
            "straggler_sections_relative": relative,
            "straggler_sections_individual": individual,
        }

    def _peers_score(self, section: str, rank: int) -> float:
        """The middle of the other ranks' individual scores; 1 where there is none.

        Only as far as they have fallen by more than noise.
        """
        known = [
            found.individual if found.best is not None and _apart(found.work, found.best) else 1.0
            for other, window in self.windows.items()
            if other != rank
            and (found := window.sections.get(section)) is not None
            and found.work is not None
            and found.individual
        ]
        return median(known) if known else 1.0

    def _reads_input(self, section: str) -> bool:
        return any(
            (found := window.sections.get(section)) is not None and found.input_ms > 0
            for window in self.windows.values()
        )

    def _ids(self, scores: Mapping[int, float | None], threshold: float) -> set[StragglerId]:
        return {self._id(rank) for rank, score in scores.items() if _below(score, threshold)}

    def _id(self, rank: int) -> StragglerId:
        return StragglerId(rank, self.rank_to_node[rank])


def _below(score: float | None, threshold: float) -> bool:
    return score is not None and score < threshold


def _apart(work: Summary, best: Summary) -> bool:
    """True if a window's median lies above the best one's by more than chance makes likely."""
    noise = math.hypot(work.error or 0.0, best.error or 0.0)
    return work.median - best.median > LIKELY_SLOWED * noise
