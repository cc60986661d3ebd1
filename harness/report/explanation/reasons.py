"""Reasons for the verdict, each once, with all ranks of which it was seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hanglab.analyzer.plain_text import shown
from hanglab.analyzer.verdict import Evidence
from hanglab.analyzer.wording import name_line
from hanglab.harness.report.explanation.parts import EvidenceLine, Reason
from hanglab.harness.report.explanation.subject import Subject, without_line

#: Observations that are shown; the chain has all.
MOST_SHOWN = 5
#: Measurements, which may differ between ranks of which the same is said.
_MEASURED = re.compile(
    r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?=\s?(?:ms|s|%|[KMG]i?B|elements|times|batches)\b|%)"
)
#: Folders of a line of code; ``where`` has the whole path.
_FOLDERS = re.compile(r"(?<= at )/(?:[^/\s]+/)*(?=[^/\s]+:\d+ \()")
#: Evidence about how the verdict was reached, not about the job.
_OF_THE_METHOD = ("simulation", "source", "backend")


@dataclass
class _Alike:
    """Observations of one kind that say the same but for measurements."""

    source: str
    texts: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    first: int = 0


def reasons(subject: Subject) -> tuple[tuple[Reason, ...], int]:
    """Those that are shown, culprits' first, and the number of those left out."""
    culprits = set(subject.culprits)
    place = name_line(subject.verdict.location)
    together: dict[tuple[str, str, bool], _Alike] = {}
    for number, item in enumerate(_without_repeats(subject.verdict.evidence)):
        about_culprit = item.rank in culprits
        detail = _FOLDERS.sub("", item.detail).removeprefix("a peer ")
        if place:
            detail = without_line(detail, place.removeprefix(" at "))  # it stands under where
        key = (item.source, _MEASURED.sub("#", detail), about_culprit)
        alike = together.setdefault(key, _Alike(item.source, first=number))
        alike.texts.append(detail)
        if item.rank is not None:
            alike.ranks.append(item.rank)
    found = list(together.items())
    found.sort(
        key=lambda one: (
            one[0][0] in _OF_THE_METHOD,
            not one[0][2] and bool(culprits),
            one[1].first,
        )
    )
    told = [
        Reason(shown(_spanned(one.texts)), tuple(sorted(set(one.ranks))), shown(one.source))
        for _, one in found
    ]
    return tuple(told[:MOST_SHOWN]), max(0, len(told) - MOST_SHOWN)


def chain(subject: Subject) -> tuple[EvidenceLine, ...]:
    """All evidence in the analyzer's order."""
    return tuple(
        EvidenceLine(shown(item.source), item.rank, shown(item.detail))
        for item in subject.verdict.evidence
    )


def _without_repeats(evidence: Sequence[Evidence]) -> list[Evidence]:
    """The evidence without what another item of the same rank says with a line more."""
    details: dict[int | None, list[str]] = {}
    for item in evidence:
        details.setdefault(item.rank, []).append(item.detail)
    kept: list[Evidence] = []
    seen: set[tuple[int | None, str]] = set()
    for item in evidence:
        repeated = (item.rank, item.detail) in seen or any(
            other != item.detail and other.startswith(f"{item.detail} at ")
            for other in details[item.rank]
        )
        if not repeated:
            kept.append(item)
        seen.add((item.rank, item.detail))
    return kept


def _spanned(texts: Sequence[str]) -> str:
    """One text for all: where measurements differ, from the least to the most."""
    if len(set(texts)) == 1:
        return texts[0]
    measured = [_MEASURED.findall(text) for text in texts]
    columns = list(zip(*measured, strict=True))
    spans = iter([_span(column) for column in columns])
    return _MEASURED.sub(lambda _: next(spans), texts[0])


def _span(values: Sequence[str]) -> str:
    ordered = sorted(set(values), key=lambda value: float(value.replace(",", "")))
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
