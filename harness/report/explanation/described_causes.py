"""Causes by the name that somebody types, and what is known of each."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from hanglab.analyzer.catalogue import Cause
from hanglab.analyzer.plain_text import shown
from hanglab.harness.errors import UsageError
from hanglab.harness.report.explanation.cause_texts import text_of


def known_cause(name: str) -> Cause:
    """The cause of that name.  Raises UsageError with those that are like it."""
    try:
        return Cause(name.strip().lower().replace("-", "_"))
    except ValueError:
        causes = [one.value for one in Cause]
        near = get_close_matches(name, causes, n=3)
        guess = f"Did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            f"there is no cause named {shown(name, 80)}.", f"{guess}Causes: {', '.join(causes)}."
        ) from None


def described(cause: Cause) -> dict[str, Any]:
    """The definition of a cause, its proof, what it is often taken for, and references."""
    text = text_of(cause.value)
    return {
        "cause": cause.value,
        "category": cause.category.value,
        "status": cause.status.value,
        "what": text.what,
        "proof": text.proof,
        "mistaken_for": dict(text.mistaken_for),
        "advice": cause.advice,
        "references": [address(one) for one in text.references],
    }


def address(reference: str) -> str:
    """An address that a browser opens, for one in the short form of a thread or a paper."""
    if reference.startswith("arXiv:"):
        return f"https://arxiv.org/abs/{reference.removeprefix('arXiv:')}"
    repository, hash_, number = reference.partition("#")
    if hash_ and number.isdigit() and "://" not in reference:
        return f"https://github.com/{repository}/issues/{number}"
    return reference
