"""File descriptors: ``fd_exhausted``, also where the error speaks of something else."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.exhaustion import resource_proposal
from hanglab.analyzer.causes.thresholds import SPARE_DESCRIPTORS
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.error_texts import texts_of
from hanglab.analyzer.facts.resource_failures import (
    location_of,
    matching_line,
    own_failures,
    text_of,
)
from hanglab.analyzer.facts.thresholds import LATEST_SAMPLES
from hanglab.analyzer.proposal import Proposal, detector
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.recorder.case.host_records import RankLoad

_SAID = texts_of(Cause.FD_EXHAUSTED)


@detector
def fd_exhausted(facts: CaseFacts) -> Iterator[Proposal]:
    """A rank that raised while it held as many descriptors as it may."""
    for failure in own_failures(facts):
        if failure.cause not in (Cause.FD_EXHAUSTED, Cause.EXCEPTION, Cause.LOADER_WORKER_DIED):
            continue
        load = _fullest(facts, failure.view.rank)
        named = failure.cause is Cause.FD_EXHAUSTED
        if load is None or not (named or _SAID.search(text_of(failure))):
            continue
        yield resource_proposal(
            facts,
            Cause.FD_EXHAUSTED,
            [failure.view],
            f"ran out of file descriptors ({load.fd_limit} allowed)",
            [
                Evidence(failure.source, failure.view.rank, matching_line(failure, _SAID)),
                Evidence(
                    "host",
                    failure.view.rank,
                    f"held {load.fds} of the {load.fd_limit} file descriptors that it may have",
                ),
            ],
            location=location_of(failure),
        )


def _fullest(facts: CaseFacts, rank: int) -> RankLoad | None:
    """The latest sample in which the rank was at its limit, if it was one of the last three."""
    for load in reversed(facts.host_of(rank).loads(rank)[-LATEST_SAMPLES:]):
        if load.fds is not None and load.fd_limit and load.fds >= load.fd_limit - SPARE_DESCRIPTORS:
            return load
    return None
