"""The wait-for graph: who waits for whom, and where all waiting ends."""

from __future__ import annotations

from hanglab.analyzer.graph.builder import build_wait_for_graph, graph_of_summaries

__all__ = ["build_wait_for_graph", "graph_of_summaries"]
