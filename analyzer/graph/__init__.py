"""The wait-for graph: who waits for whom, and where all waiting ends."""

from __future__ import annotations

from hanglab.analyzer.graph.builder import build_picture, picture

__all__ = ["build_picture", "picture"]
