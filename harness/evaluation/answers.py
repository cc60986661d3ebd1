"""An answer on one Case: what of a verdict can be held against a truth, whoever gave it."""

from __future__ import annotations

import msgspec

from hanglab.analyzer.verdict import Verdict

#: The contender that an evaluation is about, and the same as installed, to compare it with.
SUBJECT = "hanglab"
BASELINE = "hanglab as installed"
#: Under ``inputs.unusable`` the engine calls a heuristic so.
_HEURISTIC = "heuristic "


class Accusation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding."""

    status: str
    cause: str | None = None
    culprits: list[int] = []
    confidence: float = 1.0


class CaseAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Answer to a Case: its verdict, or why it was not judged."""

    status: str | None = None
    cause: str | None = None
    culprits: list[int] = []
    confidence: float = 0.0
    file: str | None = None
    line: int | None = None
    summary: str = ""
    #: Every finding, the leading one first.
    findings: list[Accusation] = []
    #: Why the Case was refused, in a sentence.
    refused: str | None = None
    #: What went wrong where nothing should.
    crash: str | None = None
    #: Heuristics that were not believed, with the reason.
    failed: dict[str, str] = {}
    #: Time that the analysis took.
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """The cause, or the status where there is none."""
        if self.crash is not None:
            return "crash"
        if self.refused is not None:
            return "refused"
        return self.cause or self.status or "inconclusive"

    @property
    def conclusive(self) -> bool:
        return self.status not in (None, "inconclusive")


def answer_of(verdict: Verdict) -> CaseAnswer:
    """The part of a verdict that can be judged."""
    place = verdict.location
    return CaseAnswer(
        status=verdict.status.value,
        cause=verdict.cause.value if verdict.cause else None,
        culprits=sorted(verdict.culprits),
        confidence=verdict.confidence,
        file=place.file if place else None,
        line=place.line if place else None,
        summary=verdict.summary,
        findings=[
            Accusation(
                finding.status.value,
                finding.cause.value if finding.cause else None,
                sorted(finding.culprits),
                finding.confidence,
            )
            for finding in verdict.findings
        ],
        failed={
            one.file.removeprefix(_HEURISTIC): one.reason
            for one in verdict.inputs.unusable
            if one.file.startswith(_HEURISTIC)
        },
    )
