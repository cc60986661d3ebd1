"""Matching across ranks: from columns to the picture of who waits for whom."""

from hanglab.analyzer.communication.matching import build_picture, picture
from hanglab.analyzer.communication.merging import Merged, merge
from hanglab.analyzer.communication.summary import Summary, summarise

__all__ = ["Merged", "Summary", "build_picture", "merge", "picture", "summarise"]
