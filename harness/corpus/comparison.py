"""Answers compared: with the frozen ones, field by field, and with the truth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any

from hanglab.harness.corpus.entries import Truth


def differences(frozen: Any, now: Any, field: str = "") -> Iterator[str]:
    """A line for each field that differs, with the frozen value and today's.

    A field that the schema has got since is no difference where it says nothing.
    """
    if frozen is _ABSENT and now in (None, []):
        return
    if isinstance(frozen, dict) and isinstance(now, dict):
        for key in {**frozen, **now}:
            inner = f"{field}.{key}" if field else key
            yield from differences(frozen.get(key, _ABSENT), now.get(key, _ABSENT), inner)
    elif isinstance(frozen, list) and isinstance(now, list) and _nested(frozen + now):
        for index in range(max(len(frozen), len(now))):
            was, is_now = (side[index] if index < len(side) else _ABSENT for side in (frozen, now))
            yield from differences(was, is_now, f"{field}[{index}]")
    elif frozen != now:
        yield f"{field or 'verdict'}: {_text(frozen)} -> {_text(now)}"


#: Of a field that one side lacks.
_ABSENT = object()


def _nested(items: list[Any]) -> bool:
    return any(isinstance(item, dict) for item in items)


def _text(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False)


#: Up to this confidence a verdict names candidates.
UNSURE = 0.6


class Agreement(str, Enum):
    """Agreement of a verdict with the truth."""

    AGREES = "agrees"
    #: It names several ranks, the culprits among them, and is not sure.
    CANDIDATES = "candidates"
    INCONCLUSIVE = "inconclusive"
    #: It says something else.
    DIFFERS = "differs"
    #: There is none to compare with.
    NO_TRUTH = "no truth"


def compare_with_truth(answer: dict[str, Any], truths: list[Truth] | None) -> Agreement:
    if truths is None:
        return Agreement.NO_TRUTH
    if any(_agrees(answer, truth) for truth in truths):
        return Agreement.AGREES
    if answer.get("confidence", 1.0) <= UNSURE and any(_includes(answer, t) for t in truths):
        return Agreement.CANDIDATES
    undecided = answer.get("status") == "inconclusive" or "error" in answer
    return Agreement.INCONCLUSIVE if undecided else Agreement.DIFFERS


def _agrees(answer: dict[str, Any], truth: Truth) -> bool:
    return (
        answer.get("status") == truth.status
        and truth.cause in (None, answer["cause"])
        and sorted(answer["culprits"]) == sorted(truth.culprits)
    )


def _includes(answer: dict[str, Any], truth: Truth) -> bool:
    return answer.get("status") == truth.status and set(truth.culprits) < set(answer["culprits"])
