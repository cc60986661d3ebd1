"""Errors of the analyzer that a person can act on."""

from __future__ import annotations

from hanglab.recorder.errors import HanglabError


class InputError(HanglabError):
    """Input cannot be analysed."""
