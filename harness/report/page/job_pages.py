"""Choices of the jobs of a run that get pages of their own."""

from __future__ import annotations

from enum import Enum


class JobPages(str, Enum):
    """Jobs of a run that get pages of their own; each is 2 MB, and takes a second or two."""

    FAILED = "failed"
    ALL = "all"
    NONE = "none"
