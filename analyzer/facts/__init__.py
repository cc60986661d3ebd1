"""Facts: what a Case or a folder of dumps says about each rank, worked out once for all causes."""

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView

__all__ = ["CaseFacts", "RankView"]
