"""Rounds of a loop that a rank began, by the branches of the user's code that it took."""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case import evidence_files as files


def rounds_begun(view: RankView, file: str, first: int) -> int | None:
    """Rounds of the loop that begins in that line of a file, of all times that it was entered.

    None where branches were not recorded, or not all of them, or none of that loop.
    """
    trace = view.read(files.BRANCHES)
    if trace is None or not trace.whole:
        return None
    rounds = sum(
        (branch.kind, branch.place.file, branch.place.line) == (layout.LOOP_AGAIN, file, first)
        for branch in trace.branches
    )
    return rounds or None
