"""Shared parts of the integrations: thresholds, logging of a report, stopping together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from hanglab.recorder.slowness import median
from hanglab.recorder.slowness.thresholds import SCORE_THRESHOLD
from hanglab.recorder.straggler.detector import Detector
from hanglab.recorder.straggler.exchange import told_by_rank0
from hanglab.recorder.straggler.reporting import Report, StragglerId
from hanglab.recorder.straggler.scoring import INDIVIDUAL, RELATIVE

Scores = Mapping[int, "float | None"]


@dataclass(frozen=True)
class Thresholds:
    """Scores below these are a straggler's, strictly; from 0 (worst) to 1."""

    gpu_relative: float = SCORE_THRESHOLD
    gpu_individual: float = SCORE_THRESHOLD
    section_relative: float = SCORE_THRESHOLD
    section_individual: float = SCORE_THRESHOLD


class StragglerWatch:
    """Runs the detector of the process over a loop, and tells when it should end.

    Args:
        report_time_interval: Seconds between reports.
        scores_to_compute: As of the detector.
        thresholds: What counts as slow.
        stop_if_detected: Let ``step`` answer True, on all ranks at the same step, once a
            straggler was found.  At each report, and once after the 20th step, the ranks
            then agree by one broadcast of the default group; nothing else here communicates
            through the job's groups.
        profiling_interval: Time every so-many-th entry of a section.
        scores_to_log: So many of the best and of the worst scores are logged; 0 for none.
        logger: Where reports are told.
    """

    def __init__(
        self,
        *,
        report_time_interval: float = 60.0,
        scores_to_compute: tuple[str, ...] = (RELATIVE, INDIVIDUAL),
        thresholds: Thresholds | None = None,
        stop_if_detected: bool = False,
        profiling_interval: int = 1,
        scores_to_log: int = 5,
        logger: logging.Logger | None = None,
    ) -> None:
        self.thresholds = thresholds or Thresholds()
        self.stop_if_detected = stop_if_detected
        #: The latest report of this rank, and who was slow in it.
        self.report: Report | None = None
        self.stragglers: frozenset[StragglerId] = frozenset()
        self._scores = scores_to_compute
        self._report_time_interval = report_time_interval
        self._profiling_interval = profiling_interval
        self._scores_to_log = scores_to_log
        self._log = logger or logging.getLogger("hanglab.straggler")

    def start(self) -> None:
        """Start the detector that calls on ``Detector`` go to."""
        Detector.initialize(
            scores_to_compute=self._scores,
            gather_on_rank0=True,
            profiling_interval=self._profiling_interval,
            report_time_interval=self._report_time_interval,
            agree_by_collective=self.stop_if_detected,
        )

    def stop(self) -> None:
        """Shut the detector down, wrapped callables included."""
        Detector.shutdown()

    def step(self) -> bool:
        """A step has ended: report if it is time.  True if training should end now."""
        report = Detector.generate_report_if_interval_elapsed()
        if report is not None:
            self._judge(report)
        if not self.stop_if_detected or not Detector.is_interval_elapsed():
            return False
        return told_by_rank0(report is not None and bool(self.stragglers))

    def _judge(self, report: Report) -> None:
        self.report = report
        limits = self.thresholds
        found = report.identify_stragglers(
            gpu_rel_threshold=limits.gpu_relative,
            gpu_indiv_threshold=limits.gpu_individual,
            section_rel_threshold=limits.section_relative,
            section_indiv_threshold=limits.section_individual,
        )
        slow: set[StragglerId] = set()
        for scores, words, ranks in (
            (report.gpu_relative_perf_scores, "its GPU", found["straggler_gpus_relative"]),
            (report.gpu_individual_perf_scores, "its GPU", found["straggler_gpus_individual"]),
        ):
            slow |= self._tell(words, scores, ranks)
        for section, ranks in found["straggler_sections_relative"].items():
            slow |= self._tell(
                f"section {section}", report.section_relative_perf_scores[section], ranks
            )
        for section, ranks in found["straggler_sections_individual"].items():
            scores = report.section_individual_perf_scores[section]
            slow |= self._tell(f"section {section}, against its own past,", scores, ranks)
        self.stragglers = frozenset(slow)
        if self._scores_to_log:
            for line in best_and_worst(report, self._scores_to_log):
                self._log.info("%s", line)

    def _tell(self, words: str, scores: Scores, ranks: set[StragglerId]) -> set[StragglerId]:
        for one in sorted(ranks, key=lambda one: one.rank):
            score = scores.get(one.rank)
            known = f", score {score:.2f}" if score is not None else ""
            self._log.warning("Rank %d (%s) is slow: %s%s", one.rank, one.node, words, known)
        return ranks


def named_scores(report: Report) -> dict[str, Scores]:
    """All scores of a report by a name that a logger may show."""
    named: dict[str, Scores] = {
        "gpu_relative_perf": report.gpu_relative_perf_scores,
        "gpu_individual_perf": report.gpu_individual_perf_scores,
    }
    for section, scores in report.section_relative_perf_scores.items():
        named[f"section_relative_perf/{section}"] = scores
    for section, scores in report.section_individual_perf_scores.items():
        named[f"section_individual_perf/{section}"] = scores
    return {name: scores for name, scores in named.items() if _known(scores)}


def summarised(report: Report) -> dict[str, float]:
    """Smallest, median and largest of each kind of score, for a metrics logger."""
    out: dict[str, float] = {}
    for name, scores in named_scores(report).items():
        known = [score for score, _ in _known(scores)]
        out[f"{name}/min"], out[f"{name}/max"] = min(known), max(known)
        out[f"{name}/median"] = median(known)
    return out


def best_and_worst(report: Report, count: int) -> list[str]:
    """One line per kind of score: its ``count`` worst and best ranks."""
    lines = []
    for name, scores in named_scores(report).items():
        known = _known(scores)
        worst = ", ".join(f"rank {rank} {score:.2f}" for score, rank in known[:count])
        best = ", ".join(f"rank {rank} {score:.2f}" for score, rank in known[::-1][:count])
        lines.append(f"{name}: worst {worst}; best {best}")
    return lines


def _known(scores: Scores) -> list[tuple[float, int]]:
    """Scores that are known, with their ranks, worst first."""
    return sorted((score, rank) for rank, score in scores.items() if score is not None)


def scores_asked(relative: bool, individual: bool) -> tuple[str, ...]:
    """Names of the scores to compute.  Raises ValueError where none is asked for."""
    if not (relative or individual):
        raise ValueError(
            "Neither relative nor individual scores are asked for; pass True for one of them."
        )
    return ((RELATIVE,) if relative else ()) + ((INDIVIDUAL,) if individual else ())
