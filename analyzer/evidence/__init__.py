"""Evidence: what a Case or a folder of dumps says about each rank, ready for heuristics."""

from hanglab.analyzer.evidence.model import Evidence, RankView

__all__ = ["Evidence", "RankView"]
