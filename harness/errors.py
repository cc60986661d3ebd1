"""Everything that hanglab raises on purpose: what happened, and what to do next."""

from __future__ import annotations


class HanglabError(Exception):
    """Root of hanglab's errors.

    ``advice`` says what to do next; subclasses set it, an instance may replace it.
    """

    advice: str = ""
    #: What the command line ends with.
    exit_code: int = 4

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        if advice is not None:
            self.advice = advice


class UsageError(HanglabError):
    """The command was called with something that does not exist or does not fit."""

    advice = "`hanglab --help` shows what can be asked for."
    exit_code = 64


class MissingExtra(HanglabError, ImportError):
    """A command needs a part of hanglab that was not installed with it."""
