"""The root of everything that hanglab raises on purpose: what happened, and what to do next.

Errors that only steer the flow within one module, and never reach a person, need no
advice and do not derive from it.
"""

from __future__ import annotations


class HanglabError(Exception):
    """Root of hanglab's errors; its text says in one sentence what happened.

    ``advice`` says what to do next; subclasses set it, an instance may replace it.
    """

    advice: str = ""
    #: What the command line ends with.
    exit_code: int = 4

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        if advice is not None:
            self.advice = advice
