"""Facts: what a Case or a folder of dumps says about each rank, worked out once for all causes."""

from hanglab.analyzer.facts.evidence import Evidence, RankView

__all__ = ["Evidence", "RankView"]
