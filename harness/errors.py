"""Errors of the command line; their root is below all parts of hanglab."""

from __future__ import annotations

from hanglab.recorder.errors import HanglabError

__all__ = ["HanglabError", "MissingExtra", "UsageError"]


class UsageError(HanglabError):
    """The command was called with something that does not exist or does not fit."""

    advice = "`hanglab --help` shows what can be asked for."
    exit_code = 64


class MissingExtra(HanglabError, ImportError):
    """A command needs a part of hanglab that was not installed with it."""
