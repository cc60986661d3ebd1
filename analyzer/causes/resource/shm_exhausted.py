"""/dev/shm that is full or too small for what loader workers hand over."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from hanglab.analyzer.causes.exhaustion import resource_proposal
from hanglab.analyzer.causes.thresholds import DEFAULT_SHM_BYTES
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.error_texts import texts_of
from hanglab.analyzer.facts.full_file_systems import SHARED_MEMORY, is_full
from hanglab.analyzer.facts.resource_failures import (
    location_of,
    matching_line,
    own_failures,
    size,
    text_of,
)
from hanglab.analyzer.proposal import Proposal, detector
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.recorder.case.host_records import FileSystem

_SAID = texts_of(Cause.SHM_EXHAUSTED)


@detector
def shm_exhausted(facts: CaseFacts) -> Iterator[Proposal]:
    """A bus error, or an error about shared memory, where there is next to none."""
    for failure in own_failures(facts):
        view = failure.view
        space = _shared(facts, view)
        if space is None:
            continue
        tight = is_full(space) or (space.size_bytes or DEFAULT_SHM_BYTES + 1) <= DEFAULT_SHM_BYTES
        text = text_of(failure)
        bus_error = _bus_error(view) or "Bus error" in text
        if tight and (_SAID.search(text) or bus_error) and not _other_disk(facts, view, text):
            yield resource_proposal(
                facts,
                Cause.SHM_EXHAUSTED,
                [view],
                f"ran out of shared memory ({size(space.size_bytes)} in all)",
                [
                    Evidence(failure.source, view.rank, matching_line(failure, _SAID)),
                    Evidence(
                        "host",
                        view.rank,
                        f"{space.path} has {size(space.free_bytes)} left of "
                        f"{size(space.size_bytes)}",
                    ),
                ],
                location=location_of(failure),
            )


def _shared(facts: CaseFacts, view: RankView) -> FileSystem | None:
    spaces = facts.host_of(view.rank).spaces(view.rank)
    return next((space for space in spaces if "shm" in space.uses), None)


def _bus_error(view: RankView) -> bool:
    if view.ended is not None and view.ended.signal == signal.SIGBUS:
        return True
    return any(child.signal == signal.SIGBUS for child in view.children)


def _other_disk(facts: CaseFacts, view: RankView, text: str) -> bool:
    """True if a bus error fits another file system that is full as well."""
    if SHARED_MEMORY.search(text):
        return False
    spaces = facts.host_of(view.rank).spaces(view.rank)
    return any("shm" not in space.uses and is_full(space) for space in spaces)
