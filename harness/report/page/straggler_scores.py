"""Scores of ranks by section and over time."""

from __future__ import annotations

from pathlib import Path

from hanglab.harness.report.page.records import Chart, Line, ScoreTable
from hanglab.harness.report.stragglers.history import (
    NothingToCompare,
    StragglerHistory,
    load_history,
)
from hanglab.recorder.case.reader import NotACase
from hanglab.recorder.slowness import relative_scores
from hanglab.recorder.slowness.thresholds import FLOOR_MS

#: Ranks and sections of a table; of more ranks the lowest in score.
MOST_RANKS = 64
MOST_SECTIONS = 12
#: Ranks with a line of their own over time.
MOST_LINES = 16


def score_table(case: Path) -> ScoreTable | None:
    """Scores of a Case; None where it has no sections."""
    try:
        history = load_history(case)
    except (NothingToCompare, NotACase):
        return None
    sections = history.sections[:MOST_SECTIONS]
    medians = {section: history.medians(section) for section in sections}
    scores = {
        section: relative_scores({rank: medians[section].get(rank) for rank in history.ranks})
        for section in sections
    }
    lowest = {
        rank: min((s for one in sections if (s := scores[one].get(rank)) is not None), default=1.0)
        for rank in history.ranks
    }
    ranks = sorted(sorted(history.ranks, key=lambda rank: lowest[rank])[:MOST_RANKS])
    many = len(history.windows)
    windows = "1 window" if many == 1 else f"{many} windows"
    notes = [f"{windows}, from {history.source}.", *history.remarks]
    if len(ranks) < len(history.ranks):
        notes.append(f"Of {len(history.ranks)} ranks the {len(ranks)} lowest in score.")
    return ScoreTable(
        sections=sections,
        ranks=ranks,
        medians=[[_rounded(medians[one].get(rank)) for one in sections] for rank in ranks],
        scores=[[_rounded(scores[one].get(rank)) for one in sections] for rank in ranks],
        over_time=_over_time(history),
        notes=notes,
    )


def _over_time(history: StragglerHistory) -> Chart:
    """For each rank the lowest score of its sections, window by window; of one window no line."""
    points: dict[int, list[tuple[float, float]]] = {}
    for window in history.windows:
        lowest: dict[int, float] = {}
        for section, by_rank in window.work.items():
            # Below a millisecond the score is noise, whatever it says.
            if max(summary.median for summary in by_rank.values()) < FLOOR_MS:
                continue
            for rank, score in window.scores(section).items():
                if score is not None:
                    lowest[rank] = min(score, lowest.get(rank, 1.0))
        for rank, score in lowest.items():
            points.setdefault(rank, []).append((window.at_s, score))
    if len(history.windows) < 2:
        points.clear()
    chosen = sorted(points, key=lambda rank: min(score for _, score in points[rank]))[:MOST_LINES]
    return Chart(
        title="Lowest score of the rank's sections",
        unit="score",
        lines=[
            Line(
                name=f"rank {rank}",
                x=[round(at, 3) for at, _ in points[rank]],
                y=[round(score, 3) for _, score in points[rank]],
            )
            for rank in sorted(chosen)
        ],
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
