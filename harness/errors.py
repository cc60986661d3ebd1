"""Everything that hanglab raises on purpose: what happened, and what to do next."""

from __future__ import annotations


class HanglabError(Exception):
    """Root of hanglab's errors.

    ``advice`` says what to do next; subclasses set it, an instance may replace it.
    """

    advice: str = ""

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        if advice is not None:
            self.advice = advice
