"""Labels of Cases: what they must say, and sentences on what is wrong with one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from hanglab.analyzer.verdict import Cause, Status
from hanglab.harness.corpus.entries import CorpusEntry, Truth

#: An SPDX expression: identifiers, and words between them.
_LICENCE = re.compile(r"\(?[A-Za-z0-9][A-Za-z0-9.+-]*( (AND|OR|WITH) [A-Za-z0-9.+()-]+)*\)?")
_NAME = re.compile(r"[\w-][\w.#-]*(/[\w-][\w.#-]*)*")


def problems_of_name(name: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f"{name!r} names no entry: letters, digits, - _ and ., with / between folders"


def problems_of_label(entry: CorpusEntry) -> Iterator[str]:
    """A sentence's end for each thing that is wrong with a label."""
    if not entry.source.strip():
        yield "its origin is empty"
    if not _LICENCE.fullmatch(entry.licence):
        yield f"its licence {entry.licence!r} is no SPDX identifier"
    if entry.truth is not None and not entry.truth:
        yield "it says no truth"
    for truth in entry.truth or ():
        yield from problems_of_truth(truth)


def problems_of_truth(truth: Truth) -> Iterator[str]:
    statuses = [status.value for status in Status if status is not Status.INCONCLUSIVE]
    if truth.status not in statuses:
        yield f"its status {truth.status!r} is none of {', '.join(statuses)}"
    if truth.cause is not None:
        try:
            Cause(truth.cause)
        except ValueError:
            yield f"its cause {truth.cause!r} is not in the catalogue"
    if truth.status == Status.HEALTHY.value and (truth.cause or truth.culprits or truth.lines):
        yield "a sound job has no cause, no culprits and no line"
    if any(rank < 0 for rank in truth.culprits):
        yield "culprits are ranks, from 0 on"
    if any(line < 1 for line in truth.lines):
        yield "lines count from 1"


def problems_of_ranks(truths: Sequence[Truth], ranks: Collection[int]) -> Iterator[str]:
    """Culprits that the job does not have; ``ranks`` is empty where nothing tells its ranks."""
    strange = sorted({rank for truth in truths for rank in truth.culprits} - set(ranks))
    if ranks and strange:
        words = ", ".join(map(str, strange))
        yield f"the job has no rank {words}"


__all__ = ["problems_of_label", "problems_of_name", "problems_of_ranks", "problems_of_truth"]
