"""Processes and threads that could not be started: ``pids_exhausted``."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.exhaustion import resource_proposal
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.error_texts import texts_of
from hanglab.analyzer.facts.host import Span
from hanglab.analyzer.facts.resource_failures import (
    location_of,
    matching_line,
    own_failures,
    text_of,
)
from hanglab.analyzer.proposal import Proposal, detector
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.recorder.case.host_records import PidsGroup

_SAID = texts_of(Cause.PIDS_EXHAUSTED)


@detector
def pids_exhausted(facts: CaseFacts) -> Iterator[Proposal]:
    """A rank that could start no more, in a group that has refused to start any."""
    for failure in own_failures(facts):
        view = failure.view
        said = _SAID.search(text_of(failure) + view.stderr[-4000:])
        span = _refusing(facts, view.rank)
        if not said or span is None:
            continue
        yield resource_proposal(
            facts,
            Cause.PIDS_EXHAUSTED,
            [view],
            f"could start no more processes or threads ({span.last.limit} allowed)",
            [
                Evidence(failure.source, view.rank, matching_line(failure, _SAID)),
                Evidence(
                    "host",
                    view.rank,
                    f"its control group {span.last.path} refused "
                    f"{span.grown(lambda group: group.refused):.0f} at a limit of "
                    f"{span.last.limit} tasks",
                ),
            ],
            location=location_of(failure),
        )


def _refusing(facts: CaseFacts, rank: int) -> Span[PidsGroup] | None:
    for span in facts.host_of(rank).pids:
        if rank in span.last.ranks and span.grown(lambda group: group.refused) > 0:
            return span
    return None
