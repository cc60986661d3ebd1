"""A verdict as SARIF 2.1.0, which code scanning pages show at the line that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from hanglab.analyzer.catalogue import Cause, Status
from hanglab.harness.report.explanation.cause_texts import text_of
from hanglab.harness.report.explanation.parts import CallFrame, Explanation, Place

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Status.SLOW.value: "warning", Status.INCONCLUSIVE.value: "note"}


def sarif(told: Explanation, root: Path | None = None) -> dict[str, Any]:
    """One run with one result, or with none for a healthy job.

    Files below ``root`` are named from there, as pages of a repository need.
    """
    results = [] if told.status == Status.HEALTHY.value else [_result(told, root)]
    rules = [_rule(told.cause)] if told.cause is not None and results else []
    driver: dict[str, Any] = {"name": "hanglab", "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(cause: str) -> dict[str, Any]:
    text = text_of(cause)
    rule: dict[str, Any] = {"id": cause, "shortDescription": {"text": cause.replace("_", " ")}}
    if text.what:
        rule["fullDescription"] = {"text": text.what}
    rule["help"] = {"text": Cause(cause).advice}
    return rule


def _result(told: Explanation, root: Path | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": told.cause or told.status,
        "level": _LEVELS.get(told.status, "error"),
        "message": {"text": _message(told)},
        "properties": {
            "status": told.status,
            "confidence": told.confidence,
            "culprits": list(told.culprits),
            "waiting": list(told.waiting),
        },
    }
    main = [place for place in told.where if place.role == "culprit"][:1]
    if not main and told.mend is not None and told.mend.frame is not None:
        main = [Place("culprit", told.culprits, told.mend.frame)]
    result["locations"] = [_location(place, root) for place in main]
    others = [place for place in told.where if place not in main]
    result["relatedLocations"] = [
        {"id": number, **_location(place, root), "message": {"text": _who(place)}}
        for number, place in enumerate(others, 1)
    ]
    if main and len(main[0].calls) > 1:
        calls = reversed(main[0].calls)
        frames = [{"location": _location(Place("", (), call), root)} for call in calls]
        result["stacks"] = [{"message": {"text": _who(main[0])}, "frames": frames}]
    return result


def _message(told: Explanation) -> str:
    mend = f" {told.mend.text}" if told.mend is not None else ""
    return told.headline + mend


def _who(place: Place) -> str:
    if place.role == "decision":
        return "the statement that parted the ranks"
    ranks = ", ".join(map(str, place.ranks))
    return f"{'rank' if len(place.ranks) == 1 else 'ranks'} {ranks} {place.doing}".rstrip()


def _location(place: Place, root: Path | None) -> dict[str, Any]:
    region = {"startLine": max(1, place.frame.line)}
    artifact = {"uri": _address(place.frame, root)}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _address(frame: CallFrame, root: Path | None) -> str:
    path = Path(frame.file)
    if root is not None and path.is_absolute() and path.is_relative_to(root):
        path = path.relative_to(root)
    named = quote(path.as_posix())
    return f"file://{named}" if path.is_absolute() else named
