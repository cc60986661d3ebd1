"""Errors of the analyzer that a person can act on."""

from __future__ import annotations


class InputError(Exception):
    """What was given cannot be analysed.  ``advice`` says what to do next."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice
