"""Heuristics: pure functions from evidence to proposals, one cause family per file."""
