"""Errors of the analyzer that a person can act on."""

from __future__ import annotations

from hanglab.recorder.errors import HanglabError


class InputError(HanglabError):
    """What was given cannot be analysed."""
