"""Checks of numbers among the options that bounds do not make."""

from __future__ import annotations

import math

import typer


def finite(value: float | None) -> float | None:
    """For an option's callback: neither ``nan``, which is below no bound, nor ``inf``."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number to count with.")
    return value
