"""Checks of numbers among the options that bounds do not make."""

from __future__ import annotations

import math

import typer


def finite(value: float | None) -> float | None:
    """Refuse ``nan``, which is below no bound, and ``inf``; an option's callback."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number to count with.")
    return value


def share(value: float | None) -> float | None:
    """Refuse what is no number from 0 to 1; an option's callback."""
    if value is not None and not 0 <= value <= 1:
        raise typer.BadParameter(f"{value:g} is no share; it goes from 0 to 1.")
    return value
