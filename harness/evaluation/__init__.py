"""Evaluation: verdicts held against known truths, and what a heuristic changes in them."""
